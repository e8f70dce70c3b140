"""`tidelog channels`: channels over HTTP on a backend of their own.

serve     run the gateway
"""
