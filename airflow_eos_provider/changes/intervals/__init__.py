"""An interval run that is given up."""
