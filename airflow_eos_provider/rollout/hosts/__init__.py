"""How one worker is reached to change one property and restart it; a module per kind of host."""
