//! Whether the broker is the one that this daemon expects, and whether it works as it should.

use crate::config::Settings;
use crate::pve::BrokerInfo;

/// What the broker says of itself, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    /// It has our version and our policy.
    pub(super) agrees: bool,
    /// What a person should know.
    pub(super) problem: Option<String>,
}

/// Why the broker would refuse every change for the cluster `ours`, if it would.
pub(super) fn binding(info: &BrokerInfo, ours: Option<&str>) -> Option<String> {
    let (theirs, ours) = (info.cluster.as_deref()?, ours?);
    (theirs != ours).then(|| {
        format!(
            "the broker is bound to the cluster {theirs} and refuses every change for this one, {ours}: \
             `pve-autoscaler adopt` on its host shows what is left of that cluster and binds it to this one"
        )
    })
}

/// Judges what the broker answered, or why it did not.
pub(super) fn judge<E: std::fmt::Display>(
    info: Result<BrokerInfo, E>,
    settings: &Settings,
) -> Judgement {
    let ours = env!("CARGO_PKG_VERSION");
    let (agrees, problem) = match info {
        Err(error) => (false, Some(format!("the broker cannot be asked: {error}"))),
        Ok(info) if info.version != ours || info.policy_hash != settings.policy_hash() => {
            let problem = format!(
                "the broker runs version {} with another policy or version than this daemon ({ours}); \
                 systemctl restart pve-autoscaler-broker pve-autoscaler",
                info.version
            );
            (false, Some(problem))
        }
        Ok(info) if info.channel == "perl" => {
            let problem = format!(
                "the broker's calls go through PVE's Perl, slowly, since PVE's HTTP API on this host cannot be used: \
                 {}; see systemctl status pveproxy pvedaemon",
                info.last_error.as_deref().unwrap_or("no reason known")
            );
            (true, Some(problem))
        }
        Ok(_) => (true, None),
    };
    Judgement { agrees, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_the_broker_is_told_apart() {
        let text = "version = 1\n[proxmox]\nvmids = \"9000-9999\"\n";
        let settings = crate::config::parse(text, "test").expect("it is valid");
        let good = BrokerInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            policy_hash: settings.policy_hash(),
            channel: "https".to_owned(),
            ..BrokerInfo::default()
        };
        let judged = |change: fn(&mut BrokerInfo)| {
            let mut info = good.clone();
            change(&mut info);
            let judged = judge(Ok::<_, String>(info), &settings);
            (judged.agrees, judged.problem.unwrap_or_default())
        };
        assert_eq!(judged(|_| {}), (true, String::new()));
        let (agrees, problem) = judged(|info| info.version = "0.0.1".into());
        assert!(!agrees && problem.contains("version 0.0.1"), "{problem}");
        let (agrees, problem) = judged(|info| info.policy_hash = "other".into());
        assert!(!agrees && problem.contains("another policy"), "{problem}");
        let (agrees, problem) = judged(|info| {
            info.channel = "perl".into();
            info.last_error = Some("connection refused".into());
        });
        assert!(agrees, "it is the policy that agrees");
        assert!(
            problem.contains("Perl") && problem.contains("connection refused"),
            "{problem}"
        );
        let silent = judge(Err("no such socket"), &settings);
        assert!(!silent.agrees && silent.problem.is_some());
        let mut bound = good.clone();
        assert_eq!(binding(&bound, Some("new/home")), None, "not bound yet");
        bound.cluster = Some("old/home".into());
        assert_eq!(binding(&bound, None), None, "ours is not known yet");
        assert_eq!(binding(&bound, Some("old/home")), None);
        let problem = binding(&bound, Some("new/home")).unwrap_or_default();
        for words in ["old/home", "new/home", "pve-autoscaler adopt"] {
            assert!(problem.contains(words), "{problem}");
        }
    }
}
