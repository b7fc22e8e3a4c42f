//! A cloud furnished as a region is: the types, zones and prices of the built-in catalog, a network, images, a role.

use super::store::{Cloud, Settings};
use plimsoll_actuator::ports::{Image, InstanceProfile, SecurityGroup, Subnet, Tags};
use plimsoll_catalog::SpotPrices;
use plimsoll_catalog::builtin::{self, UnknownRegion};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::time::Timestamp;

/// The Kubernetes minor of the simulated cluster, as SSM's paths have it.
pub const KUBERNETES: &str = "1.36";
/// Tag by which node classes find the network.
pub const DISCOVERY: &str = "karpenter.sh/discovery";
/// Addresses of a `/20` less what AWS keeps.
const FREE_ADDRESSES: u32 = 4091;
/// How old the images are: well before the simulation begins.
const IMAGE_CREATED: Timestamp = Timestamp(1_764_547_200_000);

/// Image variants of Amazon Linux 2023: architecture and variant.
const AL2023: &[(&str, &str)] =
    &[("x86_64", "standard"), ("x86_64", "nvidia"), ("x86_64", "neuron"), ("arm64", "standard"), ("arm64", "nvidia")];

impl Cloud {
    /// The region of the settings with a network for each value of the discovery tag: one subnet a zone and one
    /// security group. `sells` chooses the types on offer by name.
    ///
    /// # Errors
    /// There is no built-in catalog of the region.
    pub fn of_region(
        seed: u64,
        settings: Settings,
        networks: &[String],
        sells: impl Fn(&str) -> bool,
    ) -> Result<Self, UnknownRegion> {
        let (zones, prices) = (builtin::zones(&settings.region)?, builtin::prices(&settings.region)?);
        let mut cloud = Self::new(seed, settings);
        for kind in builtin::facts().iter().filter(|kind| sells(&kind.name)) {
            let Some(price) = prices.of(&kind.name, "", CapacityType::OnDemand) else { continue };
            let SpotPrices::Known(spot) = &prices.spot else { continue };
            let sold: Vec<_> = zones
                .iter()
                .filter(|zone| zone.instance_types.contains(&kind.name))
                .map(|zone| {
                    let price = spot.get(&kind.name).and_then(|by_zone| by_zone.get(&zone.name));
                    (zone.name.as_str(), price.copied().unwrap_or_default())
                })
                .collect();
            cloud.offer(kind.clone(), price, &sold);
        }
        for network in networks {
            let discovered: Tags = [(DISCOVERY.to_owned(), network.clone())].into();
            for zone in zones {
                let subnet = Subnet {
                    id: format!("subnet-{network}-{}", zone.name),
                    zone: zone.name.clone(),
                    zone_id: zone.id.clone(),
                    free_ipv4_addresses: FREE_ADDRESSES,
                    tags: discovered.clone(),
                };
                cloud.subnets.insert(subnet.id.clone(), subnet);
            }
            let group = SecurityGroup { id: format!("sg-{network}"), name: network.clone(), tags: discovered };
            cloud.security_groups.insert(group.id.clone(), group);
        }
        cloud.publish_images();
        let profile = InstanceProfile {
            name: "karpenter-node".to_owned(),
            path: "/".to_owned(),
            role: Some("karpenter-node".to_owned()),
            tags: Tags::new(),
        };
        cloud.support.profiles.insert(profile.name.clone(), profile);
        Ok(cloud)
    }

    /// The images of Amazon Linux 2023 and Bottlerocket, with the parameters that name the newest of each.
    fn publish_images(&mut self) {
        for (number, (architecture, variant)) in AL2023.iter().enumerate() {
            self.publish_al2023(number, architecture, variant, "v20251201", IMAGE_CREATED);
        }
        for (number, architecture) in ["x86_64", "arm64"].iter().enumerate() {
            let name = format!("bottlerocket-aws-k8s-{KUBERNETES}-{architecture}-v1.50.0");
            let id = self.publish(&format!("ami-0b07713{number:010}"), &name, architecture);
            let path = format!("/aws/service/bottlerocket/aws-k8s-{KUBERNETES}/{architecture}/latest/image_id");
            self.support.parameters.insert(path, id);
        }
    }

    /// Publishes newer images of Amazon Linux 2023, which the parameters name from now on.
    pub fn release_images(&mut self, version: &str, now: Timestamp) {
        for (number, (architecture, variant)) in AL2023.iter().enumerate() {
            let number = self.images.len() + number;
            self.publish_al2023(number, architecture, variant, version, now);
        }
    }

    fn publish_al2023(&mut self, number: usize, architecture: &str, variant: &str, version: &str, at: Timestamp) {
        let name = format!("amazon-eks-node-al2023-{architecture}-{variant}-{KUBERNETES}-{version}");
        let id = self.publish(&format!("ami-0a12023{number:010}"), &name, architecture);
        if let Some(image) = self.images.get_mut(&id) {
            image.created = at;
        }
        let path = format!(
            "/aws/service/eks/optimized-ami/{KUBERNETES}/amazon-linux-2023/{architecture}/{variant}/recommended/image_id"
        );
        self.support.parameters.insert(path, id);
    }

    fn publish(&mut self, id: &str, name: &str, architecture: &str) -> String {
        let image = Image {
            id: id.to_owned(),
            name: name.to_owned(),
            architecture: architecture.to_owned(),
            created: IMAGE_CREATED,
            deprecated: false,
            tags: Tags::new(),
        };
        self.images.insert(id.to_owned(), image);
        id.to_owned()
    }
}
