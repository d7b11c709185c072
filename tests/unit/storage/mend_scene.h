/* mend_scene.h: damaged disks that are mended (storage/mend.c), what a leader does for them, and what may be found however far that has come. */
#ifndef HOLDFAST_TEST_STORAGE_MEND_SCENE_H
#define HOLDFAST_TEST_STORAGE_MEND_SCENE_H

#include "harness.h"

struct mend_scene {
	uint64_t snapshot, trim_to;
	uint64_t entries[2]; /* damaged */
	bool snapshot_too;
	uint64_t first, last; /* what is kept of the log */
	bool lost;
};

enum { MEND_SCENES = 6 };
extern const struct mend_scene mend_scenes[MEND_SCENES];

void mend_prepare(const struct mend_scene *s, const char *dir); /* the damaged disk */
/* A start with it, the fetching of what is lost, and the start after that. acknowledged: called in between, once all is there. */
void mend_live(const char *dir, void (*acknowledged)(void));
/* Whatever is found, it is what the steps may leave: the damage, found again; or the mended log with what is lost written down and what there was kept
 * (`damaged`: the disk as it was prepared); or all of it. Fetches what lacks; true: something did. */
bool mend_check_found(const struct mend_scene *s, const char *dir, const char *damaged);

#endif
