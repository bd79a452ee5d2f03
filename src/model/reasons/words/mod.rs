//! Every reason's sentence, one file for each family: the only place where a reason becomes words, for terminal, JSON,
//! Events and log. Lower case, without a full stop; amounts as people write them ([`crate::words`]).

pub(super) mod excess;
mod filter_failure;
mod given_up;
mod held;
mod leaving;
mod pods;
mod refused;
mod removal;
mod warning;

use std::fmt::{self, Display, Formatter};

/// Things one after the other, with a text between them.
pub(crate) struct Joined<'s, I>(pub(crate) I, pub(crate) &'s str);

impl<I> Display for Joined<'_, I>
where
    I: Iterator + Clone,
    I::Item: Display,
{
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, item) in self.0.clone().enumerate() {
            if index > 0 {
                f.write_str(self.1)?;
            }
            item.fmt(f)?;
        }
        Ok(())
    }
}
