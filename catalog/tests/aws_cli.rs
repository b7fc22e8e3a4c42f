//! Tests of catalogs from outputs of the AWS CLI. `tools/rebuild.py` created the built-in facts from the same
//! descriptions as in `data/aws/instance-types.json`.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use plimsoll_catalog::aws_cli::AwsCliOutput;
use plimsoll_catalog::{NodeClassSettings, builtin};
use plimsoll_model::catalog::{CapacityType, Catalog};
use serde_json::json;

const FILES: [&str; 5] = [
    include_str!("data/aws/instance-types.json"),
    include_str!("data/aws/offerings.json"),
    include_str!("data/aws/spot-price-history.json"),
    include_str!("data/aws/zones.json"),
    include_str!("data/aws/prices.json"),
];

fn read(files: &[&str]) -> AwsCliOutput {
    let mut output = AwsCliOutput::default();
    files.iter().for_each(|file| output.add(file).unwrap());
    output
}

fn price(catalog: &Catalog, name: &str, zone: &str, capacity_type: CapacityType) -> Option<i64> {
    let offerings = &catalog.get(name)?.offerings;
    offerings.iter().find(|it| it.zone == zone && it.capacity_type == capacity_type).map(|it| it.price.0)
}

#[test]
fn types_are_those_of_the_built_in_catalog() {
    let settings = NodeClassSettings::default();
    let ours = read(&FILES[..1]).catalog(Some("us-east-1"), &settings).unwrap();
    let built_in = builtin::catalog("us-east-1", &settings).unwrap();
    let names: Vec<&str> = ours.instance_types.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["c6gd.xlarge", "g4dn.xlarge", "inf1.xlarge", "m5.large", "trn1.2xlarge"], "a Mac is no node");
    for instance_type in &ours.instance_types {
        assert_eq!(Some(instance_type), built_in.get(&instance_type.name));
    }
}

#[test]
fn another_region_has_its_own_zones_and_prices() {
    let catalog = read(&FILES).catalog(None, &NodeClassSettings::default()).unwrap();
    assert_eq!(catalog.region, "eu-central-1");
    let names: Vec<&str> = catalog.instance_types.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["c6gd.xlarge", "g4dn.xlarge", "m5.large"], "those with a price");
    let of = |name, zone, kind| price(&catalog, name, zone, kind);
    assert_eq!(of("m5.large", "eu-central-1a", CapacityType::OnDemand), Some(115_000), "Linux, and of this region");
    assert_eq!(of("m5.large", "eu-central-1a", CapacityType::Spot), Some(43_700), "the latest of Linux");
    assert_eq!(of("m5.large", "eu-central-1b", CapacityType::Spot), None, "no price");
    assert_eq!(of("c6gd.xlarge", "eu-central-1b", CapacityType::Spot), Some(61_000));
    assert_eq!(catalog.get("m5.large").unwrap().offerings[0].zone_id, "euc1-az2");
}

#[test]
fn bare_metal_has_the_price_of_dedicated_tenancy() {
    let product = |name: &str, family: &str, tenancy: &str, usd: &str| {
        let attributes = json!({"instanceType": name, "regionCode": "eu-central-1", "operatingSystem": "Linux",
            "tenancy": tenancy, "capacitystatus": "Used", "preInstalledSw": "NA"});
        let dimensions = json!({"X.Y.Z": {"unit": "Hrs", "pricePerUnit": {"USD": usd}}});
        json!({"product": {"productFamily": family, "attributes": attributes},
            "terms": {"OnDemand": {"X.Y": {"priceDimensions": dimensions}}}})
        .to_string()
    };
    let metal = "Compute Instance (bare metal)";
    let prices = json!({"PriceList": [
        product("m5.metal", metal, "Dedicated", "5.52"),
        product("m5.metal", metal, "Host", "9.99"),
        product("m5.large", "Compute Instance", "Shared", "0.115"),
        product("m5.large", "Compute Instance", "Dedicated", "0.122"),
    ]});
    let offered = ["m5.metal", "m5.large"].map(|name| json!({"InstanceType": name, "Location": "eu-central-1a"}));
    let offered = json!({"InstanceTypeOfferings": offered});
    // Without descriptions, the built-in facts describe the types.
    let output = read(&[prices.to_string().as_str(), offered.to_string().as_str()]);
    let catalog = output.catalog(None, &NodeClassSettings::default()).unwrap();
    let of = |name| price(&catalog, name, "eu-central-1a", CapacityType::OnDemand);
    assert_eq!((of("m5.metal"), of("m5.large")), (Some(5_520_000), Some(115_000)));
}

#[test]
fn only_on_demand_products_count_and_prices_in_china_are_in_yuan() {
    let product = |market: &str, price: &str| {
        let attributes = json!({"instanceType": "m5.large", "regionCode": "cn-north-1", "operatingSystem": "Linux",
            "tenancy": "Shared", "capacitystatus": "Used", "preInstalledSw": "NA", "marketoption": market});
        let dimensions = json!({"X.Y.Z": {"unit": "Hrs", "pricePerUnit": {"CNY": price}}});
        json!({"product": {"productFamily": "Compute Instance", "attributes": attributes},
            "terms": {"OnDemand": {"X.Y": {"priceDimensions": dimensions}}}})
        .to_string()
    };
    let prices = json!({"PriceList": [product("OnDemand", "0.657"), product("CapacityBlock", "0.1")]});
    let offered = json!({"InstanceTypeOfferings": [{"InstanceType": "m5.large", "Location": "cn-north-1a"}]});
    let output = read(&[prices.to_string().as_str(), offered.to_string().as_str()]);
    let catalog = output.catalog(None, &NodeClassSettings::default()).unwrap();
    assert_eq!(price(&catalog, "m5.large", "cn-north-1a", CapacityType::OnDemand), Some(657_000));
}

#[test]
fn order_does_not_matter() {
    let mut reversed = FILES;
    reversed.reverse();
    assert_eq!(read(&FILES), read(&reversed));
}

#[test]
fn faults_name_the_path_or_the_command() {
    let fault = |text: &str| AwsCliOutput::default().add(text).unwrap_err().to_string();
    assert!(fault("InstanceTypes").starts_with("not JSON: "), "{}", fault("InstanceTypes"));
    assert!(fault("{\"Reservations\": []}").contains("aws ec2 describe-instance-types, "), "{}", fault("{}"));
    let wrong = FILES[0].replacen("\"SizeInMiB\": ", "\"SizeInMiB\": \"many\", \"other\": ", 1);
    assert!(
        fault(&wrong).starts_with("InstanceTypes[0].MemoryInfo.SizeInMiB: invalid type: string"),
        "{}",
        fault(&wrong)
    );
    let huge = FILES[0].replacen("\"SizeInMiB\": ", "\"SizeInMiB\": 9223372036854775807, \"other\": ", 1);
    assert!(fault(&huge).starts_with("InstanceTypes[0].MemoryInfo.SizeInMiB: invalid value"), "{}", fault(&huge));
    let wrong = FILES[2].replacen("0.041200", "cheap", 1);
    assert_eq!(fault(&wrong), "SpotPriceHistory[0].SpotPrice: \"cheap\" is not a price in USD per hour");
    let wrong = FILES[1].replacen("\"availability-zone\"", "\"region\"", 1);
    assert_eq!(fault(&wrong), "InstanceTypeOfferings[0].LocationType: use --location-type availability-zone");
    let of =
        |files: &[&str], region| read(files).catalog(region, &NodeClassSettings::default()).unwrap_err().to_string();
    assert!(
        of(&FILES[..1], Some("eu-central-1"))
            .contains("aws ec2 describe-instance-type-offerings --location-type availability-zone")
    );
    assert!(of(&FILES[..1], None).starts_with("the region is not clear (no output names one)"));
}
