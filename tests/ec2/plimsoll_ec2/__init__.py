"""moto's EC2 with the behaviour that Plimsoll's tests need: capacity, prices, idempotency and faults."""
