"""A simulated machine: a clock that is turned by hand and a disk that loses what a power cut may take.

It ships with the package, so that whoever builds on Tidelog can test with it too. One seed replays a run; nothing in
here looks at the real time, the real disk or an unseeded random number.

    clock.py       SimulatedClock
    disk.py        SimulatedDisk, what a test holds in its hand
    file.py        what a process holds of it: open files and locks
    inode.py       the contents of one file and what a crash makes of them
    namespace.py   the names of files and folders and what a crash makes of them
    faults.py      the plan of what goes wrong, and when
"""
