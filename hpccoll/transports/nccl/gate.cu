// Kernels that hold a stream, each run by one thread of one block: the gate until the host opens it, or until a limit;
// the pause for a time.
//
// words[0] is the number of the last gate that the host has opened, words[1] that of the last one that gave up; both are
// in pinned host memory, which GPUs read and write while a kernel runs. Gates are numbered, so that the host may open one
// that has not begun. The file includes no headers, so that NVRTC needs none.

__device__ __forceinline__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

extern "C" __global__ void gate(volatile unsigned long long* words, unsigned long long number, unsigned long long limit_ns) {
    const unsigned long long began = nanoseconds();
    while (words[0] < number)
        if (nanoseconds() - began > limit_ns) {
            words[1] = number;
            __threadfence_system();
            return;
        }
}

extern "C" __global__ void pause(unsigned long long duration_ns) {
    const unsigned long long began = nanoseconds();
    while (nanoseconds() - began < duration_ns) {
    }
}
