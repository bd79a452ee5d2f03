//! What is too complex, in words; and what earlier versions, which kept the words alone, meant by them.

use std::fmt::{self, Display, Formatter};

use crate::reasons::Excess;

const PARTS: [&str; 2] = [
    "too complex: its constraints have ",
    " parts, more than one decision looks at; with fewer or simpler terms it counts again",
];
const KINDS: &str = "too complex: there are more kinds of pods than one decision looks at, and its namespace has most of them";
const STEPS: [&str; 3] = [
    "too complex: to weigh its constraints takes ",
    " steps, more than its namespace's share of the ",
    " of one decision leaves; with fewer or simpler affinity terms, or fewer kinds of pods, it counts again",
];
const BUDGETS: [&str; 2] = [
    "too complex: the disruption budgets of the namespace ",
    " would be asked too often",
];

impl Display for Excess {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Excess::Parts { parts } => {
                let [before, after] = PARTS;
                write!(f, "{before}{parts}{after}")
            }
            Excess::Kinds => f.write_str(KINDS),
            Excess::Steps { steps, budget } => {
                let [before, between, after] = STEPS;
                write!(f, "{before}{steps}{between}{budget}{after}")
            }
            Excess::DisruptionBudgets { namespace } => {
                let [before, after] = BUDGETS;
                write!(f, "{before}{namespace}{after}")
            }
        }
    }
}

/// Reads one of these sentences: records of earlier versions have it in the place of the reason. Whoever changes the words above keeps
/// the old ones for this.
pub(in crate::reasons) fn read_sentence(why: &str) -> Option<Excess> {
    let between = |[before, after]: [&str; 2]| why.strip_prefix(before)?.strip_suffix(after);
    if let Some(parts) = between(PARTS) {
        let parts = parts.parse().ok()?;
        return Some(Excess::Parts { parts });
    }
    if let Some(namespace) = between(BUDGETS) {
        let namespace = namespace.into();
        return Some(Excess::DisruptionBudgets { namespace });
    }
    if let Some(numbers) = between([STEPS[0], STEPS[2]]) {
        let (steps, budget) = numbers.split_once(STEPS[1])?;
        let (steps, budget) = (steps.parse().ok()?, budget.parse().ok()?);
        return Some(Excess::Steps { steps, budget });
    }
    (why == KINDS).then_some(Excess::Kinds)
}
