"""Small workloads that exercise each rule of the interface."""
