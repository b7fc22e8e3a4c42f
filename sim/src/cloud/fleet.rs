//! CreateFleet of type `instant`: tokens, choice and capacity.

use super::machine::Machine;
use super::store::{Capacity, Cloud, Pool};
use plimsoll_actuator::ports::{
    CloudError, FleetAnswer, FleetInstance, FleetRequest, LaunchTemplateConfig, OfferingError, Override,
};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::time::{Millis, Timestamp};

/// Length of a client token, at most, as EC2 limits it.
const TOKEN_LENGTH: usize = 64;
/// Launch templates of a request, at most, as EC2's API model limits them.
const CONFIGS: usize = 50;
/// Maximum number of overrides in a CreateFleet request, over all launch templates.
const OVERRIDES: usize = 300;
/// From the launch until an instance ends that cannot start.
const ENDS_AFTER: Millis = Millis::from_seconds(3);

fn invalid(code: &str, message: String) -> CloudError {
    CloudError::InvalidRequest { code: code.to_owned(), message }
}

/// Why an override gave nothing, or no more: EC2's code and words.
pub(super) type Refusal = (&'static str, String);

/// A fleet that was asked for for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// When.
    pub at: Timestamp,
    /// The request.
    pub request: FleetRequest,
    /// What it came to.
    pub answer: FleetAnswer,
}

fn check_token(token: &str) -> Result<(), CloudError> {
    if token.is_empty() || token.len() > TOKEN_LENGTH || !token.is_ascii() {
        let message = format!("clientToken `{token}` is not 1 to 64 ASCII characters");
        return Err(invalid("InvalidParameterValue", message));
    }
    Ok(())
}

impl Cloud {
    /// Buys. One token buys once, however often and whenever it is sent; a request that is refused as a whole uses no
    /// token.
    ///
    /// # Errors
    /// The token was used with other parameters, or the request is invalid as a whole.
    pub fn create_fleet(&mut self, request: &FleetRequest, now: Timestamp) -> Result<FleetAnswer, CloudError> {
        if let Some(earlier) = self.tokens.get(&request.client_token).and_then(|at| self.fleets.get(*at)) {
            let same = earlier.request == *request;
            return if same { Ok(earlier.answer.clone()) } else { Err(CloudError::IdempotentParameterMismatch) };
        }
        check_token(&request.client_token)?;
        self.check(request)?;
        self.give_back(now);
        let fleet_id = format!("fleet-{}", self.rng.uid());
        let mut answer = FleetAnswer::default();
        let mut wanted = request.total_target_capacity;
        for (config, way) in self.choice(request) {
            let subnet = self.subnet(way);
            while wanted > 0 {
                let taken = self.check_placement(config, way, now);
                let taken = taken.and_then(|()| self.take(config, way, subnet.as_deref(), request.capacity_type));
                if let Err((code, message)) = taken {
                    answer.errors.push(OfferingError {
                        instance_type: way.instance_type.clone(),
                        zone: way.zone.clone(),
                        subnet_id: subnet.clone().unwrap_or_default(),
                        capacity_type: request.capacity_type,
                        code: code.to_owned(),
                        message,
                    });
                    break;
                }
                wanted -= 1;
                let subnet = subnet.clone().unwrap_or_default();
                answer.instances.push(self.launch(request, config, way, subnet, &fleet_id, now));
            }
        }
        self.tokens.insert(request.client_token.clone(), self.fleets.len());
        self.fleets.push(Fleet { at: now, request: request.clone(), answer: answer.clone() });
        Ok(answer)
    }

    /// Whether CreateFleet would accept a request; a dry run has no token.
    ///
    /// # Errors
    /// The request is invalid as a whole.
    pub fn dry_run_fleet(&self, request: &FleetRequest) -> Result<(), CloudError> {
        self.check(request)
    }

    /// Client tokens are forgotten, as EC2 does after some time: the same request again buys again.
    pub fn forget_tokens(&mut self) {
        self.tokens.clear();
    }

    fn check(&self, request: &FleetRequest) -> Result<(), CloudError> {
        if request.total_target_capacity == 0 {
            return Err(invalid("InvalidParameterValue", "totalTargetCapacity is 0".to_owned()));
        }
        if request.launch_template_configs.is_empty() {
            return Err(invalid("MissingParameter", "launchTemplateConfigs is empty".to_owned()));
        }
        let configs = request.launch_template_configs.len();
        let overrides: usize = request.launch_template_configs.iter().map(|config| config.overrides.len()).sum();
        if configs > CONFIGS || overrides > OVERRIDES {
            let message = format!("{configs} launchTemplateConfigs with {overrides} overrides are too many");
            return Err(invalid("InvalidParameterValue", message));
        }
        for config in &request.launch_template_configs {
            let name = &config.launch_template_name;
            let Some((template, _)) = self.templates.get(name) else {
                let message = format!("the launch template `{name}` does not exist");
                return Err(invalid("InvalidLaunchTemplateName.NotFoundException", message));
            };
            if config.version == 0 || config.version > template.version {
                let message = format!("the launch template `{name}` has no version {}", config.version);
                return Err(invalid("InvalidLaunchTemplateId.VersionNotFound", message));
            }
            if config.overrides.is_empty() {
                return Err(invalid("MissingParameter", format!("overrides of `{name}` is empty")));
            }
        }
        Ok(())
    }

    /// Overrides in the order in which they are tried: by priority or by price, then as they were sent.
    fn choice<'a>(&self, request: &'a FleetRequest) -> Vec<(&'a LaunchTemplateConfig, &'a Override)> {
        let configs = request.launch_template_configs.iter();
        let mut all: Vec<_> =
            configs.flat_map(|config| config.overrides.iter().map(move |way| (config, way))).collect();
        if request.prioritized {
            all.sort_by_key(|(_, way)| way.priority);
        } else {
            all.sort_by_key(|(_, way)| self.price(way, request.capacity_type));
        }
        all
    }

    /// Micro-dollars per hour; what has no price comes last.
    fn price(&self, way: &Override, capacity_type: CapacityType) -> i64 {
        let price = match capacity_type {
            CapacityType::Spot => self.offers.get(&(way.instance_type.clone(), way.zone.clone())),
            CapacityType::OnDemand | CapacityType::Reserved => self.on_demand.get(&way.instance_type),
        };
        price.map_or(i64::MAX, |price| price.0)
    }

    /// The override's subnet, or else the zone's first.
    fn subnet(&self, way: &Override) -> Option<String> {
        way.subnet_id
            .clone()
            .or_else(|| self.subnets.values().find(|subnet| subnet.zone == way.zone).map(|subnet| subnet.id.clone()))
    }

    /// Takes one instance's capacity and address, or nothing.
    fn take(
        &mut self,
        config: &LaunchTemplateConfig,
        way: &Override,
        subnet: Option<&str>,
        capacity_type: CapacityType,
    ) -> Result<(), Refusal> {
        let reservation = self.target(config);
        if let Some(id) = &reservation {
            self.check_reservation(id, way)?;
        }
        let (kind, zone) = (&way.instance_type, &way.zone);
        let sold = self.types.get(kind).is_some_and(|facts| facts.sells(capacity_type));
        if !sold || !self.offers.contains_key(&(kind.clone(), zone.clone())) {
            return Err(("Unsupported", format!("{kind} is not supported in {zone}")));
        }
        if !self.images.contains_key(&way.image_id) {
            return Err(("InvalidAMIID.NotFound", format!("the image `{}` does not exist", way.image_id)));
        }
        let found = subnet.and_then(|id| self.subnets.get_mut(id)).filter(|subnet| subnet.zone == *zone);
        let Some(subnet) = found else {
            let id = subnet.unwrap_or_default();
            return Err(("InvalidSubnetID.NotFound", format!("the subnet `{id}` does not exist in {zone}")));
        };
        if subnet.free_ipv4_addresses == 0 {
            let message = format!("the subnet {} has no free address", subnet.id);
            return Err(("InsufficientFreeAddressesInSubnet", message));
        }
        match self.limits.get_mut(&Pool::new(kind, zone, capacity_type)) {
            Some(Capacity::Instances(0)) => {
                return Err(("InsufficientInstanceCapacity", format!("no capacity for {kind} in {zone}")));
            }
            Some(Capacity::Refused(code, message)) => return Err((*code, (*message).to_owned())),
            Some(Capacity::Instances(left)) => *left -= 1,
            Some(Capacity::Unlimited | Capacity::Ends(..)) | None => {}
        }
        subnet.free_ipv4_addresses -= 1;
        reservation.iter().for_each(|id| self.use_reservation(id));
        Ok(())
    }

    /// Makes an instance of capacity that was taken.
    fn launch(
        &mut self,
        request: &FleetRequest,
        config: &LaunchTemplateConfig,
        way: &Override,
        subnet_id: String,
        fleet_id: &str,
        now: Timestamp,
    ) -> FleetInstance {
        let id = self.id("i");
        let mut tags = request.tags.clone();
        tags.insert("aws:ec2:fleet-id".to_owned(), fleet_id.to_owned());
        let template = self.templates.get(&config.launch_template_name);
        if let Some((template, _)) = template {
            tags.insert("aws:ec2launchtemplate:id".to_owned(), template.id.clone());
            tags.insert("aws:ec2launchtemplate:version".to_owned(), config.version.to_string());
        }
        let spec = template.map(|(_, spec)| spec);
        let first = spec.and_then(|spec| spec.network_interfaces.first());
        let mut security_group_ids = first.map(|first| first.security_group_ids.clone()).unwrap_or_default();
        security_group_ids.sort();
        let reservation = self.target(config);
        let (placement_group_id, partition) = spec.and_then(|spec| self.place(spec, &way.zone, now)).unzip();
        let number = self.launched.len();
        let (high, low) = ((number / 250) % 256, number % 250 + 4);
        let third = number / 64_000;
        let jitter = Millis(self.rng.below(self.settings.boot_jitter.0));
        let machine = Machine {
            id: id.clone(),
            instance_type: way.instance_type.clone(),
            zone: way.zone.clone(),
            image_id: way.image_id.clone(),
            subnet_id: subnet_id.clone(),
            security_group_ids,
            capacity_type: request.capacity_type,
            capacity_reservation_id: reservation.filter(|_| request.capacity_type == CapacityType::Reserved),
            placement_group_id,
            partition: partition.flatten(),
            private_dns_name: format!("ip-10-{third}-{high}-{low}.{}.compute.internal", self.settings.region),
            user_data: spec.map(|spec| spec.user_data.clone()).unwrap_or_default(),
            tags,
            launched: now,
            visible_from: now.plus(self.settings.settling),
            runs_from: self.settings.boot.map(|boot| now.plus(boot).plus(jitter)),
            stopped_from: None,
            ends_from: None,
            gone_from: None,
            end_reason: None,
            freed: false,
        };
        self.tell_state(&machine, "pending", now);
        if let Some(at) = machine.runs_from {
            self.tell_state(&machine, "running", at);
        }
        self.machines.insert(id.clone(), machine);
        self.launched.push(id.clone());
        let pool = Pool::new(&way.instance_type, &way.zone, request.capacity_type);
        if let Some(Capacity::Ends(code, message)) = self.limits.get(&pool).copied() {
            self.end(&id, now.plus(ENDS_AFTER), (code, message), now);
        }
        FleetInstance {
            instance_id: id,
            instance_type: way.instance_type.clone(),
            zone: way.zone.clone(),
            capacity_type: request.capacity_type,
            subnet_id,
            image_id: way.image_id.clone(),
        }
    }
}
