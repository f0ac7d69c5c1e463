"""Small workloads that meet each rule of the interface."""
