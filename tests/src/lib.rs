//! What crosses services, tested on the in-memory cluster and cloud.
