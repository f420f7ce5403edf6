"""Deep click models trained as replicas side by side; torch is imported when one is made, not before."""
