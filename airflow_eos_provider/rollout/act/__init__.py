"""What a roll does: the decision, the announced acts, and the gate that is handed over to a trigger."""
