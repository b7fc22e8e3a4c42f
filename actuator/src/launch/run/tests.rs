use super::*;
use plimsoll_model::catalog::CapacityType;

/// EC2 refuses the whole request, or reports the template for each offering.
#[test]
fn a_missing_template_is_found_in_each_kind_of_answer() {
    let whole = |code: &str| Err(CloudError::InvalidRequest { code: code.to_owned(), message: String::new() });
    let offerings = |codes: &[&str]| {
        let error = |code: &&str| OfferingError {
            instance_type: "m5.large".to_owned(),
            zone: "us-east-1a".to_owned(),
            subnet_id: String::new(),
            capacity_type: CapacityType::Spot,
            code: (*code).to_owned(),
            message: String::new(),
        };
        Ok(FleetAnswer { instances: Vec::new(), errors: codes.iter().map(error).collect() })
    };
    let (missing, other) = ("InvalidLaunchTemplateName.NotFoundException", "InsufficientInstanceCapacity");
    for (outcome, expected) in [
        (whole(missing), true),
        (whole("InvalidParameterValue"), false),
        (Err(CloudError::Throttled), false),
        (offerings(&[other, missing]), true),
        (offerings(&[other]), false),
    ] {
        assert_eq!(names_missing_template(&outcome), expected, "{outcome:?}");
    }
}
