//! The smaller services against recorded responses.

use crate::stub::{Reply, Stub};
use crate::{ArcZonalShift, Eks, Iam, Pricing, Sqs, Ssm};
use plimsoll_actuator::ports::{
    CloudError, ClusterDescription, InstanceProfiles, InterruptionQueue, ManagedControlPlane, ManagedResource,
    OnDemandPrice, Parameters, PriceList, QueueMessage, ZonalShift,
};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::time::Timestamp;

#[tokio::test]
async fn queue_url_is_resolved_once_and_receive_uses_long_polling() {
    let url = Reply::ok(r#"{"QueueUrl": "http://127.0.0.1/1/demo"}"#);
    let message = Reply::ok(r#"{"Messages": [{"MessageId": "1", "ReceiptHandle": "handle", "Body": "notice"}]}"#);
    let deleted = Reply::ok(r#"{"Successful": [{"Id": "0"}], "Failed": []}"#);
    let failed = r#"{"Id": "1", "SenderFault": true, "Code": "ReceiptHandleIsInvalid", "Message": "words"}"#;
    let partly = Reply::ok(&format!(r#"{{"Successful": [{{"Id": "0"}}], "Failed": [{failed}]}}"#));
    let stub = Stub::new(vec![url, message, Reply::ok("{}"), deleted, partly]).await;
    let queue = Sqs::new(&stub.config(), "demo");
    let message = QueueMessage { receipt: "handle".to_owned(), body: "notice".to_owned() };
    assert_eq!(queue.receive().await, Ok(vec![message]));
    assert_eq!(queue.receive().await, Ok(Vec::new()));
    queue.delete(&["handle".to_owned()]).await.unwrap();
    let error = queue.delete(&["one".to_owned(), "two".to_owned()]).await.unwrap_err().to_string();
    assert!(error.contains("ReceiptHandleIsInvalid: 1 of 2 messages were not deleted: words"), "{error}");
    let sent = stub.requests();
    assert_eq!(sent.len(), 5, "{sent:?}");
    assert!(sent[1].contains("\"WaitTimeSeconds\":20") && sent[1].contains("\"VisibilityTimeout\":20"), "{}", sent[1]);
    assert!(sent[3].contains("\"ReceiptHandle\":\"handle\""), "{}", sent[3]);
}

#[tokio::test]
async fn parameter_returns_its_value_or_not_found() {
    let missing = Reply::Answer(400, r#"{"__type": "ParameterNotFound", "message": "words"}"#.to_owned());
    let stub = Stub::new(vec![Reply::ok(r#"{"Parameter": {"Value": "ami-1"}}"#), missing]).await;
    let parameters = Ssm::new(&stub.config());
    assert_eq!(parameters.get("/path").await, Ok("ami-1".to_owned()));
    let missing = parameters.get("/path").await.unwrap_err();
    assert!(matches!(missing, CloudError::NotFound { .. }), "{missing}");
}

#[tokio::test]
async fn cluster_is_described_with_either_address_family() {
    let cluster = |network: &str| {
        Reply::ok(&format!(
            r#"{{"cluster": {{"name": "prod", "arn": "arn:aws:eks:us-east-1:1:cluster/prod", "endpoint": "https://a.test", "version": "1.36",
            "certificateAuthority": {{"data": "QQ=="}}, "kubernetesNetworkConfig": {network}}}}}"#
        ))
    };
    let missing = Reply::Answer(404, r#"{"__type": "ResourceNotFoundException", "message": "words"}"#.to_owned());
    let creating = Reply::ok(r#"{"cluster": {"name": "prod", "status": "CREATING", "version": "1.36"}}"#);
    let v4 = cluster(r#"{"serviceIpv4Cidr": "172.20.0.0/16", "ipFamily": "ipv4"}"#);
    let v6 = cluster(r#"{"serviceIpv6Cidr": "fd00::/108", "ipFamily": "ipv6"}"#);
    let stub = Stub::new(vec![v4, v6, creating, missing]).await;
    let eks = Eks::new(&stub.config());
    let text = |value: &str| Some(value.to_owned());
    let expected = |cidr: &str| ClusterDescription {
        arn: text("arn:aws:eks:us-east-1:1:cluster/prod"),
        endpoint: text("https://a.test"),
        certificate_authority: text("QQ=="),
        kubernetes_version: text("1.36"),
        service_cidr: text(cidr),
    };
    assert_eq!(eks.describe_cluster("prod").await, Ok(expected("172.20.0.0/16")));
    assert_eq!(eks.describe_cluster("prod").await, Ok(expected("fd00::/108")));
    let creating = eks.describe_cluster("prod").await.unwrap();
    assert_eq!(creating, ClusterDescription { kubernetes_version: text("1.36"), ..ClusterDescription::default() });
    let missing = eks.describe_cluster("prod").await.unwrap_err();
    assert!(matches!(missing, CloudError::NotFound { .. }), "{missing}");
}

/// A request and its answer, which `tests/judge` validates by AWS' own model.
const MANAGED_RESOURCE: &str = include_str!("../../../tests/judge/examples/get-managed-resource.json");

#[tokio::test]
async fn only_applied_shifts_and_autoshifts_count() {
    let example: serde_json::Value = serde_json::from_str(MANAGED_RESOURCE).unwrap();
    let none = r#"{"appliedWeights": {}, "zonalShifts": []}"#;
    let unmanaged = Reply::Answer(404, r#"{"__type": "ResourceNotFoundException", "message": "words"}"#.to_owned());
    let denied = Reply::Answer(403, r#"{"__type": "AccessDeniedException", "message": "words"}"#.to_owned());
    let stub = Stub::new(vec![Reply::ok(&example["answer"].to_string()), Reply::ok(none), unmanaged, denied]).await;
    let arc = ArcZonalShift::new(&stub.config(), example["arn"].as_str().unwrap());
    let zone = |id: &str, expires| ZonalShift { zone_id: id.to_owned(), expires };
    let expected = [zone("use1-az1", Some(Timestamp(1_767_326_400_500))), zone("use1-az4", None)];
    assert_eq!(arc.zonal_shifts().await.unwrap(), expected);
    assert_eq!(arc.zonal_shifts().await, Ok(Vec::new()));
    let unmanaged = arc.zonal_shifts().await.unwrap_err();
    assert!(matches!(unmanaged, CloudError::NotFound { .. }), "{unmanaged}");
    let denied = arc.zonal_shifts().await.unwrap_err();
    assert!(matches!(denied, CloudError::Denied { .. }), "{denied}");
    assert_eq!(stub.lines()[0], format!("GET {} HTTP/1.1", example["path"].as_str().unwrap()));
}

#[tokio::test]
async fn prices_of_both_tenancies_are_read_page_by_page() {
    let product = |kind: &str, usd: &str| {
        let text = format!(
            r#"{{"product": {{"attributes": {{"instanceType": "{kind}"}}}}, "terms": {{"OnDemand": {{"a": {{"priceDimensions":
            {{"b": {{"pricePerUnit": {{"USD": "{usd}"}}}}}}}}}}}}}}"#
        );
        serde_json::Value::from(text).to_string()
    };
    let page = |products: &[String], next: &str| {
        Reply::ok(&format!(r#"{{"FormatVersion": "aws_v1", "PriceList": [{}]{next}}}"#, products.join(",")))
    };
    let stub = Stub::new(vec![
        page(&[product("m5.metal", "4.608"), product("m5.large", "0.2")], ""),
        page(&[product("m5.large", "0.096")], r#", "NextToken": "2""#),
        page(&[product("c5.large", "0.085")], ""),
    ])
    .await;
    let prices = Pricing::new(&stub.config(), "us-east-1").on_demand_prices().await.unwrap();
    let price = |kind: &str, price| OnDemandPrice { instance_type: kind.to_owned(), price: MicroUsdPerHour(price) };
    assert_eq!(prices, [price("c5.large", 85_000), price("m5.large", 96_000), price("m5.metal", 4_608_000)]);
    let sent = stub.requests();
    assert!(sent[0].contains("Dedicated") && sent[1].contains("Shared"), "{sent:?}");
    assert!(sent[2].contains(r#""NextToken":"2""#), "{}", sent[2]);
}

/// An IAM error response.
fn refused(code: &str) -> Reply {
    let error = format!("<Error><Type>Sender</Type><Code>{code}</Code><Message>words</Message></Error>");
    Reply::Answer(404, format!("<ErrorResponse>{error}<RequestId>1</RequestId></ErrorResponse>"))
}

fn profile(role: Option<&str>) -> Reply {
    let role = role.map_or_else(String::new, |role| {
        format!(
            "<member><Path>/</Path><RoleName>{role}</RoleName><RoleId>1</RoleId><Arn>arn</Arn>\
             <CreateDate>2026-01-01T00:00:00Z</CreateDate></member>"
        )
    });
    Reply::ok(&format!(
        "<GetInstanceProfileResponse><GetInstanceProfileResult><InstanceProfile><Path>/</Path>\
         <InstanceProfileName>p</InstanceProfileName><InstanceProfileId>1</InstanceProfileId><Arn>arn</Arn>\
         <CreateDate>2026-01-01T00:00:00Z</CreateDate><Roles>{role}</Roles></InstanceProfile></GetInstanceProfileResult>\
         </GetInstanceProfileResponse>"
    ))
}

fn done(action: &str) -> Reply {
    Reply::ok(&format!("<{action}Response/>"))
}

fn actions(stub: &Stub) -> Vec<String> {
    let action = |body: &String| body.split('&').next().unwrap_or_default().replace("Action=", "");
    stub.requests().iter().map(action).collect()
}

#[tokio::test]
async fn set_role_replaces_the_role_of_an_existing_profile() {
    let replies = vec![
        refused("EntityAlreadyExists"),
        profile(Some("old")),
        done("RemoveRoleFromInstanceProfile"),
        done("AddRoleToInstanceProfile"),
        profile(Some("new")),
    ];
    let stub = Stub::new(replies).await;
    let iam = Iam::new(&stub.config());
    iam.create("p", "/", &[("team".to_owned(), "a".to_owned())].into()).await.unwrap();
    iam.set_role("p", "new").await.unwrap();
    iam.set_role("p", "new").await.unwrap();
    let expected = [
        "CreateInstanceProfile",
        "GetInstanceProfile",
        "RemoveRoleFromInstanceProfile",
        "AddRoleToInstanceProfile",
        "GetInstanceProfile",
    ];
    assert_eq!(actions(&stub), expected);
    assert!(stub.requests()[0].contains("Tags.member.1.Key=team"), "{:?}", stub.requests());
}

/// IAM's reads lag behind its writes.
#[tokio::test]
async fn set_role_waits_for_a_profile_that_was_just_created() {
    let replies = vec![
        refused("NoSuchEntity"),
        profile(None),
        refused("NoSuchEntity"),
        profile(None),
        done("AddRoleToInstanceProfile"),
    ];
    let stub = Stub::new(replies).await;
    let iam = Iam::new(&stub.config());
    iam.set_role("p", "new").await.unwrap();
    let (get, add) = ("GetInstanceProfile", "AddRoleToInstanceProfile");
    assert_eq!(actions(&stub), [get, get, add, get, add]);
}

#[tokio::test]
async fn deleting_a_missing_profile_succeeds() {
    let stub = Stub::new(vec![refused("NoSuchEntity"), profile(None), refused("NoSuchEntity")]).await;
    let iam = Iam::new(&stub.config());
    iam.delete("p").await.unwrap();
    iam.delete("p").await.unwrap();
    assert_eq!(actions(&stub), ["GetInstanceProfile", "GetInstanceProfile", "DeleteInstanceProfile"]);
}
