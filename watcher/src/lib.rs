//! The watcher: reads the cluster, asks schedulers for plans and hands them to the actuator.
