"""Plays the kubelet of every instance that the EC2 of tests/ec2 runs."""
