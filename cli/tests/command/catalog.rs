//! `plimsoll catalog` and `plimsoll completion`.

use crate::{deployment, fixture, plimsoll, plimsoll_with, repository};
use serde_json::Value;

#[test]
fn the_catalog_as_json_is_what_plan_takes() {
    let run = plimsoll(&["catalog", "-o", "json"]);
    let catalog = plimsoll_catalog::file::parse(&run.stdout).unwrap();
    assert_eq!(catalog.region, "us-east-1");
    assert!(catalog.instance_types.iter().any(|it| it.name == "m5.large"));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("catalog.json");
    // Shells of Windows begin a file with a byte order mark.
    std::fs::write(&path, format!("\u{feff}{}", run.stdout)).unwrap();
    let arguments = ["plan", "-f", &fixture("pool.yaml"), "-f", "-", "-o", "json"];
    let input = deployment("web", 3, "1", "1Gi");
    let built_in = plimsoll_with(&arguments, &input);
    let from_file = plimsoll_with(&[&arguments[..], &["--catalog", path.to_str().unwrap()]].concat(), &input);
    assert_eq!(built_in.json(), from_file.json());
}

#[test]
fn yaml_says_what_json_says() {
    let of = |format: &str| plimsoll(&["catalog", "m5.large", "-o", format]).stdout;
    let (json, yaml): (Value, Value) =
        (serde_json::from_str(&of("json")).unwrap(), serde_saphyr::from_str(&of("yaml")).unwrap());
    assert_eq!(json, yaml);
}

#[test]
fn the_table_has_a_line_for_each_type() {
    let run = plimsoll(&["catalog", "m5.*large", "-l", "karpenter.k8s.aws/instance-cpu<=4"]);
    let names: Vec<&str> = run.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["NAME", "m5.large", "m5.xlarge", "Prices:"]);
    assert!(run.stdout.contains("as EC2 published it in 2026-07; Spot synthetic"), "{}", run.stdout);
    let large: Vec<&str> = run.stdout.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(large[1..3], ["amd64", "2"]);
    assert_eq!(large[5], "0.096", "on-demand, USD per hour");
}

#[test]
fn what_matches_nothing_is_an_empty_catalog_and_a_hint() {
    let run = plimsoll(&["catalog", "q9.*"]);
    assert_eq!((run.status, run.stderr.as_str()), (0, "hint: no instance type is like that\n"));
}

#[test]
fn an_unknown_region_and_a_wrong_selector_are_bad_input() {
    plimsoll(&["catalog", "--region", "moon-1"]).refused(&["moon-1", "us-east-1", "ap-northeast-2"]);
    plimsoll(&["catalog", "-l", "a among (b)"]).refused(&["--selector", "a among (b)"]);
}

#[test]
fn each_shell_gets_its_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = plimsoll(&["completion", shell]);
        assert_eq!(run.status, 0);
        assert!(run.stdout.contains("explain") && run.stdout.contains("certificates"), "{shell}");
    }
}

#[test]
fn a_catalog_of_an_account_comes_from_the_aws_cli() {
    let file = |name: &str| repository("catalog/tests/data/aws").join(name).display().to_string();
    let files =
        ["instance-types.json", "offerings.json", "spot-price-history.json", "zones.json", "prices.json"].map(file);
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let run = plimsoll(&[&["catalog", "-o", "json", "--from-aws"], &files[..]].concat());
    assert_eq!((run.status, run.stderr.as_str()), (0, ""));
    let catalog = plimsoll_catalog::file::parse(&run.stdout).unwrap();
    assert_eq!((catalog.region.as_str(), catalog.instance_types.len()), ("eu-central-1", 3));
    plimsoll_with(&["catalog", "--from-aws", "-"], "\u{feff}{}")
        .refused(&["-: no known list", "aws ec2 describe-instance-types"]);
    plimsoll(&["catalog", "--from-aws", files[0]]).refused(&["--from-aws: the region is not clear"]);
}
