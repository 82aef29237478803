"""What training minimises and evaluation averages."""
