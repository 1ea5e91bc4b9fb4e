/* test_processors.c -- CPU quotas and memory limits of control groups, as containers and plain machines show them under
 * /proc and /sys. */
#include "base/memory.h"
#include "base/system/processors.h"
#include "base/system/threads.h"
#include "tests/test.h"
#include <sched.h>
#include <unistd.h>

static const char *root;

static void put(const char *path, const char *text) {
    char command[1024];
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s/%s')\"", root, path);
    CHECK_EQ(system(command), 0);
    snprintf(command, sizeof command, "%s/%s", root, path);
    FILE *file = fopen(command, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Writes the files of a process's groups and mounts. */
static void begin(const char *groups, const char *mounts) {
    char command[1024];
    snprintf(command, sizeof command, "rm -rf '%s/proc' '%s/sys'", root, root);
    CHECK_EQ(system(command), 0);
    put("proc/self/cgroup", groups);
    put("proc/self/mountinfo", mounts);
}

static void quota_is(double wanted) {
    double got = processors_quota(root);
    if (fabs(got - wanted) > 1e-9) fprintf(stderr, "quota %g, wanted %g\n", got, wanted);
    CHECK(fabs(got - wanted) <= 1e-9);
}

static const char *const two_mounts = "24 1 0:22 / /sys rw - sysfs sysfs rw\n30 24 0:26 / /sys/fs/cgroup rw,nosuid "
                                      "shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

static void check_version_2(void) {
    /* A container's own namespace: its group is the root. */
    begin("0::/\n", two_mounts);
    quota_is(0);
    put("sys/fs/cgroup/cpu.max", "max 100000\n");
    quota_is(0);
    put("sys/fs/cgroup/cpu.max", "150000 100000\n");
    quota_is(1.5);
    /* A service: the least limit of its group and of the groups that contain it. */
    begin("0::/system.slice/job.service\n", two_mounts);
    put("sys/fs/cgroup/system.slice/job.service/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/system.slice/cpu.max", "400000 100000\n");
    quota_is(4);
    put("sys/fs/cgroup/system.slice/job.service/cpu.max", "25000 50000\n");
    quota_is(0.5);
    /* Inside, the host's group names do not exist: only the outermost group is visible. */
    begin("0::/docker/0123\n", "30 24 0:26 /docker/0123 /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put("sys/fs/cgroup/cpu.max", "300000 100000\n");
    quota_is(3);
    begin("0::/../other\n", two_mounts);
    quota_is(0);
}

static void check_version_1(void) {
    const char *mounts = "24 1 0:22 / /sys rw - sysfs sysfs rw\n"
                         "31 24 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
                         "32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
    begin("5:cpuset:/\n4:cpu,cpuacct:/batch/job 7\n0::/\n", mounts);
    put("sys/fs/cgroup/cpu,cpuacct/batch/job 7/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/batch/job 7/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "1\n");
    put("sys/fs/cgroup/cpuset/cpu.cfs_period_us", "1\n");
    quota_is(0);
    put("sys/fs/cgroup/cpu,cpuacct/batch/job 7/cpu.cfs_quota_us", "250000\n");
    quota_is(2.5);
    /* A container on such a host: its group is mounted as the root. */
    begin("4:cpuacct,cpu:/docker/0123\n", "32 24 0:28 /docker/0123 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
    quota_is(0);
    put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    quota_is(1);
    /* Both versions at the same time, as on some hosts. */
    begin("4:cpu:/\n0::/\n", "32 24 0:28 / /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
                             "33 24 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/unified/cpu.max", "700000 100000\n");
    quota_is(3);
}

static void check_memory(void) {
    begin("0::/box/inner\n", two_mounts);
    CHECK_EQ(memory_group_limit(root), 0);
    put("sys/fs/cgroup/box/inner/memory.max", "max\n");
    put("sys/fs/cgroup/box/inner/memory.high", "max\n");
    CHECK_EQ(memory_group_limit(root), 0);
    put("sys/fs/cgroup/box/memory.max", "3000000000\n");
    CHECK_EQ(memory_group_limit(root), 3000000000);
    put("sys/fs/cgroup/box/inner/memory.high", "2000000000\n");
    CHECK_EQ(memory_group_limit(root), 2000000000);
    put("sys/fs/cgroup/memory.max", "1000000000\n");
    CHECK_EQ(memory_group_limit(root), 1000000000);
    put("sys/fs/cgroup/box/other/memory.max", "7\n");
    CHECK_EQ(memory_group_limit(root), 1000000000);
    /* Version 1, where a large number means no limit, together with version 2. */
    begin("4:memory:/process/7\n1:cpu:/\n0::/\n", "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                                                  "32 24 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                                                  "33 24 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/process/7/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/cpu/memory.limit_in_bytes", "4096\n");
    CHECK_EQ(memory_group_limit(root), 0);
    put("sys/fs/cgroup/memory/process/memory.limit_in_bytes", "536870912\n");
    CHECK_EQ(memory_group_limit(root), 536870912);
    put("sys/fs/cgroup/unified/memory.max", "268435456\n");
    CHECK_EQ(memory_group_limit(root), 268435456);
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    CHECK(memory_usable() > 0 && memory_usable() <= machine);
}

static void check_nothing(void) {
    begin("", "");
    quota_is(0);
    begin("nonsense\n0\n0:\n::\n0::\n", "nonsense\n - \n1 2 3 - cgroup2\n1 2 - cgroup2 x y\n");
    quota_is(0);
    begin("0::/\n", two_mounts);
    for (int i = 0; i < 4; i++) {
        static const char *const texts[] = {"", "max", "0 0\n", "-5 7\n"};
        put("sys/fs/cgroup/cpu.max", texts[i]);
        quota_is(0);
    }
}

/* The affinity mask limits the number of processors. */
static void check_mask(void) {
    cpu_set_t all, one;
    struct threads *pool;
    CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    int n = processors_available();
    CHECK(n >= 1 && n <= CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) return; /* not allowed on every system */
    CHECK_EQ(processors_available(), 1);
    CHECK_OK(threads_create(&pool, 0));
    CHECK_EQ(threads_count(pool), 1);
    threads_free(pool);
}

int main(int argc, char **argv) {
    test_start(argc, argv, 1);
    root = test_folder();
    check_version_2();
    check_version_1();
    check_memory();
    check_nothing();
    check_mask();
    return test_done();
}
