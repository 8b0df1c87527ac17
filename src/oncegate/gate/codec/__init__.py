"""Values of users' programs as stored bytes and back, and what is found out about users' functions."""
