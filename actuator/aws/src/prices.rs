//! The price list adapter.

use crate::deadline::{LIST, PAGE, within};
use crate::error::classify;
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_pricing::types::{Filter, FilterType};
use plimsoll_actuator::ports::{CloudError, OnDemandPrice, PriceList};
use plimsoll_model::money::MicroUsdPerHour;
use serde_json::Value;
use std::collections::BTreeMap;

const SERVICE: &str = "AmazonEC2";
/// Page size, the maximum.
const PRODUCTS: i32 = 100;
/// Tenancies to read. Bare metal is only sold with dedicated tenancy.
const TENANCIES: [&str; 2] = ["Shared", "Dedicated"];

/// The price list of one region.
#[derive(Debug, Clone)]
pub struct Pricing {
    client: aws_sdk_pricing::Client,
    region: String,
}

impl Pricing {
    /// Prices of `region`. The region of `config` must be [`Pricing::region_for`] it.
    #[must_use]
    pub fn new(config: &SdkConfig, region: &str) -> Self {
        Self { client: aws_sdk_pricing::Client::new(config), region: region.to_owned() }
    }

    /// The nearest region with the price list service, which is not in every region.
    #[must_use]
    pub fn region_for(region: &str) -> &'static str {
        match region.split('-').next().unwrap_or_default() {
            "ap" => "ap-south-1",
            "cn" => "cn-northwest-1",
            "eu" => "eu-central-1",
            _ => "us-east-1",
        }
    }

    fn currency(&self) -> &'static str {
        if self.region.starts_with("cn-") { "CNY" } else { "USD" }
    }

    async fn of_tenancy(&self, tenancy: &str) -> Result<BTreeMap<String, MicroUsdPerHour>, CloudError> {
        let family = if tenancy == "Shared" { "Compute Instance" } else { "Compute Instance (bare metal)" };
        let filters = [
            ("regionCode", self.region.as_str()),
            ("serviceCode", SERVICE),
            ("preInstalledSw", "NA"),
            ("operatingSystem", "Linux"),
            ("capacitystatus", "Used"),
            ("marketoption", "OnDemand"),
            ("tenancy", tenancy),
            ("productFamily", family),
        ];
        let mut call = self.client.get_products().service_code(SERVICE).max_results(PRODUCTS);
        for (field, value) in filters {
            let filter = Filter::builder().r#type(FilterType::TermMatch).field(field).value(value).build();
            call = call.filters(filter.map_err(|error| CloudError::InvalidRequest {
                code: "Filter".to_owned(),
                message: error.to_string(),
            })?);
        }
        let timeouts = TimeoutConfig::builder().operation_timeout(PAGE).operation_attempt_timeout(PAGE).build();
        let mut token: Option<String> = None;
        let mut prices = BTreeMap::new();
        loop {
            let page = call
                .clone()
                .set_next_token(token.clone())
                .customize()
                .config_override(aws_sdk_pricing::Config::builder().timeout_config(timeouts.clone()))
                .send()
                .await
                .map_err(classify)?;
            prices.extend(page.price_list.unwrap_or_default().iter().filter_map(|text| price(text, self.currency())));
            match page.next_token.filter(|next| !next.is_empty() && Some(next) != token.as_ref()) {
                Some(next) => token = Some(next),
                None => return Ok(prices),
            }
        }
    }
}

#[async_trait]
impl PriceList for Pricing {
    async fn on_demand_prices(&self) -> Result<Vec<OnDemandPrice>, CloudError> {
        let read = async {
            let mut prices = BTreeMap::new();
            // If a type has both prices, the shared price wins.
            for tenancy in TENANCIES.iter().rev() {
                prices.extend(self.of_tenancy(tenancy).await?);
            }
            Ok(prices.into_iter().map(|(instance_type, price)| OnDemandPrice { instance_type, price }).collect())
        };
        within(LIST, read).await
    }
}

/// The instance type and price of a product; `None` without a price.
fn price(text: &str, currency: &str) -> Option<(String, MicroUsdPerHour)> {
    let product: Value = serde_json::from_str(text).ok()?;
    let instance_type = product["product"]["attributes"]["instanceType"].as_str()?;
    let terms = product["terms"]["OnDemand"].as_object()?;
    let dimensions = terms.values().filter_map(|term| term["priceDimensions"].as_object()).flat_map(|it| it.values());
    let prices = dimensions.filter_map(|it| it["pricePerUnit"][currency].as_str()?.parse::<f64>().ok());
    let price = prices.filter(|price| *price > 0.0).reduce(f64::min)?;
    Some((instance_type.to_owned(), MicroUsdPerHour::from_usd(price)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pricing_region_is_a_region_with_the_service() {
        for (region, at) in [
            ("us-west-2", "us-east-1"),
            ("eu-north-1", "eu-central-1"),
            ("ap-northeast-2", "ap-south-1"),
            ("cn-north-1", "cn-northwest-1"),
            ("me-south-1", "us-east-1"),
        ] {
            assert_eq!(Pricing::region_for(region), at, "{region}");
        }
    }

    #[test]
    fn product_price_is_parsed_and_zero_is_ignored() {
        let product = |usd: &str| {
            format!(
                r#"{{"product": {{"attributes": {{"instanceType": "m5.large"}}}}, "terms": {{"OnDemand": {{"x": {{
                "priceDimensions": {{"y": {{"pricePerUnit": {{"USD": "{usd}"}}}}}}}}}}}}}}"#
            )
        };
        assert_eq!(price(&product("0.0960000000"), "USD"), Some(("m5.large".to_owned(), MicroUsdPerHour(96_000))));
        assert_eq!(price(&product("0.0000000000"), "USD"), None);
        assert_eq!(price(&product("0.1"), "CNY"), None);
        assert_eq!(price("{}", "USD"), None);
    }
}
