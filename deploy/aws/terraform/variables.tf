variable "cluster_name" {
  type        = string
  description = "Name of the EKS cluster."

  validation {
    condition     = can(regex("^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$", var.cluster_name))
    error_message = "cluster_name must be the name of an EKS cluster."
  }
}

variable "namespace" {
  type        = string
  description = "Namespace that Plimsoll is installed in."
  default     = "plimsoll-system"
}

variable "service_account" {
  type        = string
  description = "ServiceAccount of the actuator, the only service that calls AWS."
  default     = "plimsoll-actuator"
}

variable "credentials" {
  type        = string
  description = "How the actuator's pods get the role. PodIdentity needs the add-on eks-pod-identity-agent, IRSA needs oidc_provider."
  default     = "PodIdentity"

  validation {
    condition     = contains(["PodIdentity", "IRSA"], var.credentials)
    error_message = "credentials must be PodIdentity or IRSA."
  }
}

variable "oidc_provider" {
  type        = string
  description = "For IRSA, the issuer of the cluster without https://, such as oidc.eks.eu-west-1.amazonaws.com/id/ABC. IAM must know it as an identity provider."
  default     = ""

  validation {
    condition     = var.credentials != "IRSA" || var.oidc_provider != ""
    error_message = "credentials is IRSA, so oidc_provider must name the cluster's issuer."
  }
}

variable "create_interruption_queue" {
  type        = bool
  description = "false: interruption_queue_name names a queue that exists, and events reach it already."
  default     = true
}

variable "interruption_queue_name" {
  type        = string
  description = "Name of the queue with interruption notices; by default that of the cluster. SQS allows 80 characters."
  default     = ""
}

variable "create_node_role" {
  type        = bool
  description = "false: node_role_name names a role that exists."
  default     = true
}

variable "node_role_name" {
  type        = string
  description = "Name of the nodes' role, as node classes have it in spec.role; by default KarpenterNodeRole-<cluster>. IAM allows 64 characters."
  default     = ""
}

variable "create_access_entry" {
  type        = bool
  description = "false: the nodes' role may join the cluster already, by an access entry or the ConfigMap aws-auth."
  default     = true
}
