"""The training loop, its checkpoints, devices and processes; inference."""
