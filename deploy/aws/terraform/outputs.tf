output "interruption_queue_name" {
  description = "For the chart's settings.interruptionQueue."
  value       = local.queue_name
}

output "node_role_name" {
  description = "For spec.role of EC2NodeClasses."
  value       = local.node_role_name
}

output "actuator_role_arn" {
  description = "For the annotation eks.amazonaws.com/role-arn of the actuator's ServiceAccount, with IRSA."
  value       = aws_iam_role.actuator.arn
}
