//! Validates the spec of a node class for its condition `ValidationSucceeded`. Pure functions; [`super::dry_run`] asks
//! EC2.

use super::dry_run::Verdict;
use crate::settings::Settings;
use crate::user_data::{Bootstrap, UserDataError};
use plimsoll_api::condition::ec2_node_class::{
    AMIS_READY, INSTANCE_PROFILE_READY, SECURITY_GROUPS_READY, SUBNETS_READY, VALIDATION_SUCCEEDED,
};
use plimsoll_api::condition::{self, Moment, Status};
use plimsoll_api::ec2_node_class::EC2NodeClassStatus;
use plimsoll_api::{AmiFamily, EC2NodeClass, Validate};

/// Pod count used to check that user data can be rendered.
const SAMPLE_PODS: i64 = 110;
/// Conditions that must be true before validation.
const DEPENDENCIES: [&str; 4] = [AMIS_READY, INSTANCE_PROFILE_READY, SECURITY_GROUPS_READY, SUBNETS_READY];

/// Reason and message of a problem.
type Problem = (&'static str, String);

/// Sets the condition if the spec has a problem or a dependency is missing. Otherwise returns the paths of settings
/// that have no effect, and EC2's verdict decides.
pub(super) fn check(
    settings: &Settings,
    class: &EC2NodeClass,
    status: &mut EC2NodeClassStatus,
    moment: Moment,
) -> Option<Vec<String>> {
    let (set, conditions) = (super::status::conditions(settings.reserved_capacity), &mut status.conditions);
    let ignored = match validate(settings, class) {
        Ok(ignored) => ignored,
        Err((reason, message)) => {
            set.set(conditions, moment, VALIDATION_SUCCEEDED, Status::False, reason, &message);
            return None;
        }
    };
    let unmet: Vec<&str> =
        DEPENDENCIES.into_iter().filter(|dependency| !condition::is_true(conditions, dependency)).collect();
    if unmet.is_empty() {
        return Some(ignored);
    }
    let refused = unmet.iter().any(|dependency| condition::is_false(conditions, dependency));
    let state = if refused { Status::False } else { Status::Unknown };
    let message = format!("waits for {}", unmet.join(", "));
    set.set(conditions, moment, VALIDATION_SUCCEEDED, state, "DependenciesNotReady", &message);
    None
}

/// Sets the condition to EC2's verdict. Without an answer, a success for this generation stands.
pub(super) fn conclude(
    settings: &Settings,
    status: &mut EC2NodeClassStatus,
    moment: Moment,
    ignored: &[String],
    verdict: Verdict,
) {
    let (set, conditions) = (super::status::conditions(settings.reserved_capacity), &mut status.conditions);
    let (state, reason, message) = match verdict {
        Verdict::Permitted(remark) => {
            let ignored = (!ignored.is_empty()).then(|| format!("without effect: {}", ignored.join(", ")));
            let message: Vec<String> = ignored.into_iter().chain(remark).collect();
            (Status::True, VALIDATION_SUCCEEDED, message.join("; "))
        }
        Verdict::Refused(reason, message) => (Status::False, reason, message),
        Verdict::Unknown(message) => {
            let last = condition::get(conditions, VALIDATION_SUCCEEDED);
            let succeeded = last.is_some_and(|last| {
                last.status == Status::True.as_str() && last.observed_generation == Some(moment.generation)
            });
            if succeeded {
                return;
            }
            (Status::Unknown, "DryRunFailed", message)
        }
    };
    set.set(conditions, moment, VALIDATION_SUCCEEDED, state, reason, &message);
}

/// Paths of settings that have no effect; or the first problem, with its field.
fn validate(settings: &Settings, class: &EC2NodeClass) -> Result<Vec<String>, Problem> {
    let family = class.spec.effective_ami_family();
    if family == AmiFamily::AL2023 && settings.service_cidr.is_none() {
        let message = "AL2023 nodes need the cluster's service CIDR: set --service-cidr or allow eks:DescribeCluster";
        return Err(("ClusterCIDRResolutionFailed", message.to_owned()));
    }
    let kubelet = class.spec.kubelet.clone().unwrap_or_default();
    if let Some(problem) = kubelet.check(family).into_iter().next() {
        return Err((problem.reason.as_str(), problem.error.to_string()));
    }
    if let Some(error) = class.validate().into_iter().chain(class.spec.refused_by_ec2()).next() {
        let reason = if error.path.starts_with("spec.tags") { "TagValidationFailed" } else { "SpecValidationFailed" };
        return Err((reason, error.to_string()));
    }
    let in_user_data = user_data(settings, class).map_err(|error| {
        let reason = match error {
            UserDataError::TooLarge { .. } => "UserDataSizeLimitExceeded",
            UserDataError::Invalid(_) | UserDataError::ServiceCidrUnknown(_) => "UserDataInvalid",
        };
        (reason, error.to_string())
    })?;
    let mut ignored: Vec<String> = in_user_data.into_iter().map(|path| format!("spec.userData: {path}")).collect();
    if !class.spec.capacity_reservation_selector_terms.is_empty() && !settings.reserved_capacity {
        ignored.push("spec.capacityReservationSelectorTerms".to_owned());
    }
    if family.is_windows() && class.spec.instance_store_policy.is_some() {
        ignored.push("spec.instanceStorePolicy".to_owned());
    }
    Ok(ignored)
}

/// Renders user data of the class, without the labels and taints of a claim. Returns the settings that have no effect.
fn user_data(settings: &Settings, class: &EC2NodeClass) -> Result<Vec<String>, UserDataError> {
    let bootstrap = Bootstrap::new(settings, class, SAMPLE_PODS);
    Ok(bootstrap.render(class.spec.effective_ami_family())?.ignored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use plimsoll_api::condition::ec2_node_class::CONDITIONS;
    use serde_json::json;

    const VALID: &str = r#"{"subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}],
        "amiSelectorTerms": [{"alias": "al2023@latest"}], "role": "node"}"#;

    fn settings() -> Settings {
        Settings { service_cidr: Some("10.100.0.0/16".to_owned()), ..Settings::default() }
    }

    /// Reason and message of the condition for a class whose spec is valid except for `change`.
    fn verdict(settings: &Settings, change: serde_json::Value) -> (String, String) {
        let mut spec: serde_json::Value = serde_json::from_str(VALID).unwrap();
        let change: serde_json::Map<String, serde_json::Value> = serde_json::from_value(change).unwrap();
        spec.as_object_mut().unwrap().extend(change);
        let class = EC2NodeClass::new("default", serde_json::from_value(spec).unwrap());
        let mut status = EC2NodeClassStatus::default();
        let moment = Moment::of(&class.metadata, Timestamp::UNIX_EPOCH);
        for dependency in DEPENDENCIES {
            CONDITIONS.set_true(&mut status.conditions, moment, dependency);
        }
        if let Some(ignored) = check(settings, &class, &mut status, moment) {
            conclude(settings, &mut status, moment, &ignored, Verdict::Permitted(None));
        }
        let condition = condition::get(&status.conditions, VALIDATION_SUCCEEDED).unwrap();
        (condition.reason.clone(), condition.message.clone())
    }

    #[test]
    fn problems_name_their_field() {
        let reason = |change| verdict(&settings(), change).0;
        assert_eq!(reason(json!({})), VALIDATION_SUCCEEDED);
        assert_eq!(reason(json!({"kubelet": {"noSuchField": 1}})), "InvalidKubeletConfiguration");
        assert_eq!(reason(json!({"tags": {"karpenter.sh/nodepool": "x"}})), "TagValidationFailed");
        assert_eq!(reason(json!({"userData": "x".repeat(20_000)})), "UserDataSizeLimitExceeded");
        let toml = json!({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}], "userData": "[settings"});
        assert_eq!(reason(toml), "UserDataInvalid");
        let (reason, message) = verdict(&settings(), json!({"instanceProfile": "both"}));
        assert_eq!(reason, "SpecValidationFailed");
        assert!(message.starts_with("spec.role: "), "{message}");
    }

    #[test]
    fn what_ec2_refuses_is_reported_with_its_field() {
        let mapping = json!({"blockDeviceMappings": [{"deviceName": "/dev/xvda"}]});
        let (reason, message) = verdict(&settings(), mapping);
        assert_eq!(reason, "SpecValidationFailed");
        assert!(message.starts_with("spec.blockDeviceMappings[0].ebs: "), "{message}");
        let tags: serde_json::Map<String, serde_json::Value> =
            (0..50).map(|it| (format!("k{it}"), json!(""))).collect();
        let (reason, message) = verdict(&settings(), json!({"tags": tags}));
        assert_eq!(reason, "TagValidationFailed");
        assert!(message.starts_with("spec.tags: "), "{message}");
    }

    #[test]
    fn amazon_linux_2023_needs_the_service_cidr_and_others_do_not() {
        let unknown = Settings::default();
        assert_eq!(verdict(&unknown, json!({})).0, "ClusterCIDRResolutionFailed");
        let bottlerocket = json!({"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]});
        assert_eq!(verdict(&unknown, bottlerocket).0, VALIDATION_SUCCEEDED);
    }

    #[test]
    fn ignored_settings_are_reported() {
        let change = json!({
            "amiSelectorTerms": [{"alias": "bottlerocket@latest"}], "userData": "[settings.kubernetes]\nno-such-key = 1\n",
            "capacityReservationSelectorTerms": [{"id": "cr-1"}],
        });
        let (reason, message) = verdict(&Settings { reserved_capacity: false, ..settings() }, change);
        assert_eq!(reason, VALIDATION_SUCCEEDED);
        let expected =
            "without effect: spec.userData: settings.kubernetes.no-such-key, spec.capacityReservationSelectorTerms";
        assert_eq!(message, expected);
        let on = |alias: &str| json!({"amiSelectorTerms": [{"alias": alias}], "instanceStorePolicy": "RAID0"});
        let message = |alias: &str| verdict(&settings(), on(alias)).1;
        assert_eq!(message("windows2022@latest"), "without effect: spec.instanceStorePolicy");
        assert_eq!(message("al2023@latest"), "");
    }

    #[test]
    fn without_an_answer_the_last_success_stands() {
        let class = EC2NodeClass::new("default", serde_json::from_str(VALID).unwrap());
        let (settings, moment) = (settings(), Moment::of(&class.metadata, Timestamp::UNIX_EPOCH));
        let mut status = EC2NodeClassStatus::default();
        let mut after = |verdict, moment| {
            conclude(&settings, &mut status, moment, &[], verdict);
            let condition = condition::get(&status.conditions, VALIDATION_SUCCEEDED).unwrap();
            (condition.status.clone(), condition.reason.clone())
        };
        let unknown = || Verdict::Unknown("throttled".to_owned());
        let is = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
        assert_eq!(after(unknown(), moment), is("Unknown", "DryRunFailed"));
        let refused = Verdict::Refused("CreateFleetAuthCheckFailed", "ec2:CreateFleet".to_owned());
        assert_eq!(after(refused, moment), is("False", "CreateFleetAuthCheckFailed"));
        assert_eq!(after(unknown(), moment), is("Unknown", "DryRunFailed"), "a refusal does not stand for ever");
        assert_eq!(after(Verdict::Permitted(None), moment), is("True", VALIDATION_SUCCEEDED));
        assert_eq!(after(unknown(), moment), is("True", VALIDATION_SUCCEEDED));
        let next = Moment { generation: moment.generation + 1, ..moment };
        assert_eq!(after(unknown(), next), is("Unknown", "DryRunFailed"), "of another generation nothing is known");
    }

    #[test]
    fn missing_dependency_is_named() {
        let class = EC2NodeClass::new("default", serde_json::from_str(VALID).unwrap());
        let moment = Moment::of(&class.metadata, Timestamp::UNIX_EPOCH);
        let mut status = EC2NodeClassStatus::default();
        for dependency in [AMIS_READY, INSTANCE_PROFILE_READY, SECURITY_GROUPS_READY] {
            CONDITIONS.set_true(&mut status.conditions, moment, dependency);
        }
        check(&settings(), &class, &mut status, moment);
        let condition = condition::get(&status.conditions, VALIDATION_SUCCEEDED).unwrap();
        assert_eq!((condition.status.as_str(), condition.message.as_str()), ("Unknown", "waits for SubnetsReady"));
        CONDITIONS.set(&mut status.conditions, moment, SUBNETS_READY, Status::False, "SubnetsNotFound", "");
        check(&settings(), &class, &mut status, moment);
        assert!(condition::is_false(&status.conditions, VALIDATION_SUCCEEDED));
    }
}
