//! Counts the differences between the built-in catalog and a catalog file, such as one computed by Karpenter's AWS
//! provider: `cargo run -p plimsoll-catalog --example compare -- FILE`.

use plimsoll_catalog::{NodeClassSettings, builtin, file};
use plimsoll_model::catalog::InstanceType;
use plimsoll_model::resources::Resources;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::Write;

type Fields = BTreeMap<String, String>;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file?")?;
    let theirs = file::parse(&std::fs::read_to_string(path)?)?;
    let ours = builtin::catalog(&theirs.region, &NodeClassSettings::default())?;
    let names: BTreeSet<&str> = ours
        .instance_types
        .iter()
        .chain(&theirs.instance_types)
        .map(|instance_type| instance_type.name.as_str())
        .collect();
    let mut out = std::io::stdout().lock();
    let mut counts: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for name in &names {
        let (ours, theirs) = (ours.get(name).map(fields), theirs.get(name).map(fields));
        let (Some(ours), Some(theirs)) = (ours, theirs) else {
            writeln!(out, "{name} is in one of them only")?;
            continue;
        };
        for key in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
            if ours.get(key) != theirs.get(key) {
                let example = || format!("{name}: here {:?}, there {:?}", ours.get(key), theirs.get(key));
                let key = if key.starts_with("offering") { "offering" } else { key };
                counts.entry(key.to_owned()).or_insert_with(|| (0, example())).0 += 1;
            }
        }
    }
    writeln!(out, "{}: {} types", theirs.region, names.len())?;
    for (key, (count, example)) in counts {
        writeln!(out, "{count:6} {key}, {example}")?;
    }
    Ok(())
}

fn fields(instance_type: &InstanceType) -> Fields {
    let amounts = |kind: &str, amounts: &Resources| -> Fields {
        amounts.iter().map(|(name, amount)| (format!("{kind} {name}"), amount.to_string())).collect()
    };
    let mut fields = amounts("capacity", &instance_type.capacity);
    fields.extend(amounts("overhead", &instance_type.overhead));
    fields.extend(instance_type.labels.iter().map(|(key, value)| (format!("label {key}"), value.clone())));
    fields.insert("architecture".to_owned(), instance_type.architecture.clone());
    fields.insert("operating systems".to_owned(), instance_type.operating_systems.join(","));
    for offering in &instance_type.offerings {
        let key = format!("offering {} {}", offering.zone, offering.capacity_type);
        fields.insert(key, format!("{} {} {}", offering.zone_id, offering.price, offering.available));
    }
    fields
}
