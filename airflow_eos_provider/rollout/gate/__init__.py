"""May the next worker be restarted?"""
