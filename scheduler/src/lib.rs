//! The scheduler: answers what to launch and what to remove, and holds nothing but what a session or a request brings.
