//! Reads how long the instances of a NodePool stay after the drains of their nodes.

use crate::annotations;
use crate::problems::Fault;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_api::GoDuration;
use plimsoll_model::names::annotation;
use std::time::Duration;

/// The longest delay: that of a target group's deregistration, too.
const LONGEST: Duration = Duration::from_secs(3600);

/// How long an instance of `pool` stays after the drain of its node. Zero without the annotation.
///
/// # Errors
/// The annotation is invalid.
pub fn termination_delay(pool: &ObjectMeta) -> Result<Duration, Fault> {
    let key = annotation::TERMINATION_DELAY;
    let Some(text) = annotations::text(pool, key) else { return Ok(Duration::ZERO) };
    let delay = text.trim().parse::<GoDuration>().ok().map(|delay| delay.value()).filter(|delay| *delay <= LONGEST);
    let message = || format!("{text:?} is not a duration from 0s to 1h, such as 5m");
    delay.ok_or_else(|| annotations::fault(key, message()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(annotations: &serde_json::Value) -> Result<Duration, Fault> {
        termination_delay(&serde_json::from_value(json!({ "annotations": annotations })).unwrap())
    }

    #[test]
    fn a_delay_is_at_most_an_hour() {
        assert_eq!(of(&json!({})), Ok(Duration::ZERO));
        for (text, seconds) in [("0s", 0), ("90s", 90), (" 5m ", 300), ("1h", 3600)] {
            assert_eq!(of(&json!({annotation::TERMINATION_DELAY: text})), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "5", "-5m", "five minutes", "1h1s"] {
            let fault = of(&json!({annotation::TERMINATION_DELAY: text})).unwrap_err();
            assert_eq!(fault.field, "metadata.annotations[plimsoll.dev/termination-delay]", "{text}");
            assert!(fault.message.starts_with(&format!("{text:?} is not")), "{fault}");
        }
    }
}
