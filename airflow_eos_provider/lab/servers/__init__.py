"""The processes of a lab: brokers, workers, and what they write to or are driven by."""
