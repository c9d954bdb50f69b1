"""A broker on loopback ports that speaks the remoting protocol and fails as it is told, and a scripted network."""
