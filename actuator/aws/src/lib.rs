//! The cloud of the actuator's ports: EC2, SQS, SSM, IAM and the price list. The only crate that names an AWS SDK.
