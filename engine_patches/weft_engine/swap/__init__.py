"""KV swap: a preempted call's blocks move to host memory and return when it resumes."""
