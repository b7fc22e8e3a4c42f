terraform {
  required_version = ">= 1.9"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0, < 7.0"
    }
  }
}

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  account   = data.aws_caller_identity.current.account_id
  partition = data.aws_partition.current.partition
  region    = data.aws_region.current.region

  cluster_arn    = "arn:${local.partition}:eks:${local.region}:${local.account}:cluster/${var.cluster_name}"
  queue_name     = var.interruption_queue_name == "" ? var.cluster_name : var.interruption_queue_name
  node_role_name = var.node_role_name == "" ? "KarpenterNodeRole-${var.cluster_name}" : var.node_role_name
}
