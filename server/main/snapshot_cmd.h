/* snapshot_cmd.h: `holdfastd snapshot status|restore FILE ...`: backups, offline. */
#ifndef HOLDFAST_MAIN_SNAPSHOT_CMD_H
#define HOLDFAST_MAIN_SNAPSHOT_CMD_H

/* argv[0] is "snapshot". Returns the exit code: 0; 1: the file or the directory is not fit; 2: usage. */
int snapshot_command(int argc, char **argv);

#endif
