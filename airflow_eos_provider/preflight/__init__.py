"""What exactly-once source support does to each connector of a group, found before it is switched on."""
