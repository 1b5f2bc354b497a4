/* libdivvy: a program divides the CPU among its own processes, in proportion to shares, without privilege.
 *
 *     divvy *d = divvy_open(0);
 *     if (!d || divvy_add_pid(d, "render", render, 3) || divvy_add_pid(d, "index", index, 1))
 *         errx(1, "%s", divvy_message());
 *     ... divvy_set_share(d, "index", 2) ... divvy_report(d, rows, 2) ...
 *     divvy_close(d);
 *
 * What divides is divvyd: the system's where there is one, else the user's own, which is started and leaves by itself. It has to
 * be installed: beside the calling program, or on its PATH. docs/c.md has more.
 *
 * Functions return DIVVY_OK or what went wrong; divvy_message() says it in words. Threads may share a divvy. Nothing is printed,
 * no signal's handling is changed, and no process is started but divvyd.
 */
#ifndef DIVVY_H
#define DIVVY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Processes that are divided, each under a name. */
typedef struct divvy divvy;

/* What can go wrong. */
enum {
	DIVVY_OK = 0,
	DIVVY_INVALID = 1,      /* an argument cannot be used */
	DIVVY_NO_SCHEDULER = 2, /* divvyd does not run, cannot be started, or does not answer */
	DIVVY_REFUSED = 3,      /* divvyd refuses */
	DIVVY_NO_SUCH = 4,      /* nothing has that name, or there is no such process */
	DIVVY_SYSTEM = 5,       /* the system refuses: a permission, a directory that cannot be trusted */
	DIVVY_INTERNAL = 6      /* a fault of libdivvy's own */
};

/* For divvy_open. Without any: as `divvy` chooses (DIVVY_MODE, then the system's where it is there, else the user's own). */
enum {
	DIVVY_OWN = 1,         /* the user's own divvyd */
	DIVVY_SYSTEM_ONLY = 2, /* the system's, and no other */
	DIVVY_NO_START = 4     /* start none where none runs: DIVVY_NO_SCHEDULER */
};

/* What processes do just now. */
enum {
	DIVVY_RUNNING = 0, /* may run, and want to */
	DIVVY_HELD = 1,    /* suspended until their turn */
	DIVVY_LIMITED = 2, /* have had their limit, and are suspended until the next window */
	DIVVY_ASLEEP = 3,
	DIVVY_STOPPED = 4, /* by somebody else */
	DIVVY_PAUSED = 5,
	DIVVY_LEFT = 6     /* ended, or detached by somebody else */
};

/* Bytes of a name at most, its closing NUL among them. */
#define DIVVY_NAME_SIZE 64

/* What one was to get, and got. Fractions are of the CPU time of all of this divvy, with 1 for all. */
struct divvy_row {
	char name[DIVVY_NAME_SIZE];
	uint64_t share;
	uint64_t limit_ppm; /* the most that it may have, in millionths of one CPU; 0 for no limit */
	double target;      /* what shares, threads and limits come to */
	double achieved;
	double error;       /* (achieved - target) as a fraction of target; 0 where there is no target */
	uint64_t cpu_ns;    /* CPU time since it was added */
	uint32_t processes;
	int32_t state;      /* DIVVY_RUNNING, ... */
};

/* A divvy with nobody in it. NULL where none can be had: see divvy_error(). */
divvy *divvy_open(unsigned flags);

/* Lets all go, which run on undivided, and frees the divvy. NULL is nobody. */
void divvy_close(divvy *d);

/* One more process, with all its descendants. Shares are 1 to 1000000. A process that is to be held should have a session of its
 * own (setsid), or at least a process group (setpgid), as a job of a shell has. */
int divvy_add_pid(divvy *d, const char *name, pid_t pid, uint64_t share);

/* What a selector names: "tree:4711", "group:4711", "session:4711", "user:bob", "name:cc1*", "cgroup:/a/b", as `divvy share` has them. */
int divvy_add(divvy *d, const char *name, const char *selector, uint64_t share);

/* Another share, from now on. */
int divvy_set_share(divvy *d, const char *name, uint64_t share);

/* The most CPU time, in CPUs: 0.5 is half of one. 0 lifts the limit. */
int divvy_set_limit(divvy *d, const char *name, double cpus);

/* Holds one until it is resumed; its share goes to the others. */
int divvy_pause(divvy *d, const char *name);
int divvy_resume(divvy *d, const char *name);

/* Lets one go: it runs on, undivided, and is in no report any more. */
int divvy_remove(divvy *d, const char *name);

/* Writes up to `room` rows, in the order in which they were added, and to *count how many there are in all. */
int divvy_report(divvy *d, struct divvy_row *rows, size_t room, size_t *count);

/* What went wrong in this thread's last call that failed: the number, and in words, with what to do about it. The words stay
 * until the thread's next call. */
int divvy_error(void);
const char *divvy_message(void);

/* "running", ...; "unknown" for no state. */
const char *divvy_state_name(int32_t state);

/* The library's version: "0.1.0". */
const char *divvy_version(void);

#ifdef __cplusplus
}
#endif

#endif
