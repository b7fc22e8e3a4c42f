"""moto's EC2 with what Plimsoll's tests need of the real one: capacity, prices, idempotency and faults."""
