"""KV swap: a displaced call's blocks go to host memory and come back when it resumes."""
