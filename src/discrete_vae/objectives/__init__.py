"""What training minimizes and evaluation averages."""
