"""Commands for the description and the state of a cluster: workers, machines, topics, rights."""
