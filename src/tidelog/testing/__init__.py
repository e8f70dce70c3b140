"""Simulated machines: a clock that a test turns by hand, a disk that loses what a power cut may take, an object store
that answers late or never, and a network that delays, cuts off and breaks links.

It ships with the package, so that projects that build on Tidelog can test with it too. One seed replays a run: nothing
here reads the real time, touches the real disk, opens a socket or draws an unseeded random number.

clock         SimulatedClock
loop          SimulatedLoop: calls that happen when a test lets time pass, and what one process has of it
worker        SimulatedWorker: a thread, whose work takes simulated time
disk          SimulatedDisk: what a test creates and crashes
file          what a process holds of a disk: open files and locks
inode         the contents of one file, and what a crash makes of them
namespace     the names of files and folders, and what a crash makes of them
faults        the plan of what goes wrong on a disk, and when
object_store  SimulatedBucket: an object store, its clients and what goes wrong for each
network       SimulatedNetwork: hosts, the ways between them, partitions and losses
host          a host: the network of a process that can be stopped, killed and crashed
link          one side of a connection
flow          what is on its way from one side of a connection to the other
ready_line    the ports of a real server that was started with `--port auto`
"""
