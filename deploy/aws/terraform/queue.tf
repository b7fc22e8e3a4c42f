# Interruption notices. The rules match every instance of the account in the region. The actuator ignores foreign ones.

locals {
  # The key is the name of the rule's resource in the CloudFormation template.
  event_patterns = {
    SpotInterruptionRule = {
      source      = ["aws.ec2"]
      detail-type = ["EC2 Spot Instance Interruption Warning"]
    }
    RebalanceRule = {
      source      = ["aws.ec2"]
      detail-type = ["EC2 Instance Rebalance Recommendation"]
    }
    StateChangeRule = {
      source      = ["aws.ec2"]
      detail-type = ["EC2 Instance State-change Notification"]
      detail = {
        state = ["stopping", "stopped", "shutting-down", "terminated"]
      }
    }
    CapacityReservationInterruptionRule = {
      source      = ["aws.ec2"]
      detail-type = ["EC2 Capacity Reservation Instance Interruption Warning"]
    }
    ScheduledChangeRule = {
      source      = ["aws.health"]
      detail-type = ["AWS Health Event"]
      detail = {
        service           = ["EC2"]
        eventTypeCategory = ["scheduledChange"]
      }
    }
  }
}

resource "aws_sqs_queue" "interruption" {
  count = var.create_interruption_queue ? 1 : 0

  name = local.queue_name
  # Seconds. The shortest notice is two minutes, so older messages are useless.
  message_retention_seconds = 300
  sqs_managed_sse_enabled   = true
}

data "aws_iam_policy_document" "queue" {
  count = var.create_interruption_queue ? 1 : 0

  statement {
    sid       = "EventsFromOwnRules"
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.interruption[0].arn]

    principals {
      type        = "Service"
      identifiers = ["events.amazonaws.com"]
    }

    condition {
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values   = [for rule in aws_cloudwatch_event_rule.interruption : rule.arn]
    }
  }

  statement {
    sid       = "EncryptedTransportOnly"
    effect    = "Deny"
    actions   = ["sqs:*"]
    resources = [aws_sqs_queue.interruption[0].arn]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_sqs_queue_policy" "interruption" {
  count = var.create_interruption_queue ? 1 : 0

  queue_url = aws_sqs_queue.interruption[0].url
  policy    = data.aws_iam_policy_document.queue[0].json
}

resource "aws_cloudwatch_event_rule" "interruption" {
  for_each = { for name, pattern in local.event_patterns : name => jsonencode(pattern) if var.create_interruption_queue }

  name_prefix   = "Plimsoll-"
  description   = "${each.key} of cluster ${var.cluster_name}"
  event_pattern = each.value
}

resource "aws_cloudwatch_event_target" "interruption" {
  for_each = aws_cloudwatch_event_rule.interruption

  rule      = each.value.name
  target_id = "PlimsollQueue"
  arn       = aws_sqs_queue.interruption[0].arn
}
