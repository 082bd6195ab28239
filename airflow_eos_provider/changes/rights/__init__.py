"""Rights (ACLs): granted, and revoked."""
