// The peer kernel: a whole operation in one launch. Each block runs a program of instructions on the memory of all ranks.
//
// It follows fold.cu in the text that is compiled, whose macros, types and fold_tile it uses. It includes no headers.
//
// A rank reads what its peers send where it lies in their memory, in the fold that uses it. Two flags order that. `ready`
// of a pair of ranks counts the messages that the sender has made readable, `read` those that the receiver has read, so
// that the sender may overwrite them. Flags lie in the memory of the rank that awaits them, count up for ever, and are
// raised with release and awaited with acquire semantics at the scope of the system (PTX ISA, memory consistency model).
// Block b of a rank exchanges flags only with block b of other ranks: blocks need not wait for each other.
//
// `programs` has the first instruction of each block, and the one after the last block's last. An instruction is a row of
// 8 words: its kind, and
//
// AWAIT, RAISE    address of the flag, messages of this pair in one operation, the message, number of these instructions
//                 that are executed at once, by a thread each
// FOLD            a row of fold.cu
// SYNC            nothing: the threads of the block wait for each other

#define AWAIT 0
#define RAISE 1
#define FOLD 2
#define SYNC 3

#define WORDS 8
#define MOST 32         // instructions that are executed at once, at most
#define CHUNK 128       // instructions that are loaded into shared memory at once
#define LOOKS 1024      // looks at a flag between two looks at `abort`, which lies in host memory
#define PATIENCE 65536  // the same until the block says for which instruction it waits

typedef unsigned long long Count;

__device__ __forceinline__ Count acquired(const Count* flag) {
    Count value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
}

__device__ __forceinline__ void release(Count* flag, Count value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(flag), "l"(value) : "memory");
}

__device__ __forceinline__ int peeked(const int* word) {
    int value;
    asm volatile("ld.relaxed.sys.global.s32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ void tell(Count* word, Count value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" : : "l"(word), "l"(value) : "memory");
}

// Return the value of the flag of an instruction after the operations of `epoch` before this one.
__device__ __forceinline__ Count flag_value(const long long* row, Count epoch) {
    return epoch * (Count)row[2] + (Count)row[3];
}

// Wait for a flag, and return whether it came before the abort. While that takes long, and after the abort, `waits` tells
// the host the number of the instruction.
__device__ bool await(const long long* row, Count epoch, long long number, const int* abort, Count* waits) {
    const Count* flag = (const Count*)row[1];
    const Count value = flag_value(row, epoch);
    bool told = false;
    for (unsigned looks = 1; acquired(flag) < value; ++looks) {
        if (looks % LOOKS) continue;
        const bool aborted = peeked(abort);
        if (aborted || looks % PATIENCE == 0) {
            tell(waits, number + 1);
            told = true;
        }
        if (aborted) return false;
    }
    if (told) tell(waits, 0);
    return true;
}

// Fold a range with all threads of the block.
__device__ __forceinline__ void fold_range(const long long* row, const long long* inputs) {
    const long long elements = row[3], head = row[6];
    const long long in_tiles = head == elements ? elements : elements - head;
    const long long tiles = in_tiles <= (long long)TILE * WIDTH ? 1 : (in_tiles + TILE * WIDTH - 1) / (TILE * WIDTH);
    for (long long tile = 0; tile < tiles; ++tile) fold_tile(row, inputs, tile);
}

// One block on a multiprocessor may take all registers: with two, some variants spill a few bytes of each thread.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
peer(const long long* programs, const long long* instructions, const long long* inputs, Count* epochs, const int* abort,
     Count* waits) {
    __shared__ long long chunk[CHUNK * WORDS];
    const int me = threadIdx.x;
    const long long first = programs[blockIdx.x], last = programs[blockIdx.x + 1];
    const Count epoch = epochs[blockIdx.x];
    long long base = first, loaded = first;  // `chunk` has the instructions from `base` to before `loaded`

    for (long long at = first; at < last;) {
        if (at + MOST > loaded && loaded < last) {
            base = at;
            loaded = base + CHUNK < last ? base + CHUNK : last;
            __syncthreads();  // all threads have read the last chunk
            for (long long word = me; word < (loaded - base) * WORDS; word += THREADS)
                chunk[word] = instructions[base * WORDS + word];
            __syncthreads();
        }
        const long long* row = chunk + (at - base) * WORDS;
        const long long kind = row[0];
        long long done = 1;
        if (kind == AWAIT) {
            done = row[4];
            bool aborted = false;
            for (long long i = me; i < done; i += THREADS)
                aborted |= !await(row + i * WORDS, epoch, at + i, abort, waits + blockIdx.x);
            if (__syncthreads_or(aborted)) return;
        } else if (kind == RAISE) {
            done = row[4];
            __syncthreads();  // all threads have written what the flags release, and read what they let peers overwrite
            for (long long i = me; i < done; i += THREADS)
                release((Count*)row[i * WORDS + 1], flag_value(row + i * WORDS, epoch));
        } else if (kind == FOLD) {
            fold_range(row + 1, inputs);
        } else {
            __syncthreads();
        }
        at += done;
    }
    __syncthreads();  // all threads have read the epoch
    if (me == 0) epochs[blockIdx.x] = epoch + 1;
}
