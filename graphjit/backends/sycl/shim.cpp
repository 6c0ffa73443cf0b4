// SYCL graphs and USM behind a C interface; compiled for the host alone, by any C++17 compiler.
//
// Graphs are built node by node: no queue is ever put in the recording state. What is submitted to
// one queue stays in order, also where the queue itself keeps none: barriers go around it. One
// thread at a time submits or builds anything, since runtimes aren't all safe otherwise, and graphs
// are deleted when their last replay is over.
#include <sycl/sycl.hpp>

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ex = sycl::ext::oneapi::experimental;
using Modifiable = ex::command_graph<ex::graph_state::modifiable>;

namespace {

thread_local std::string last_error;
// Never destroyed: threads may go on when the process ends.
std::mutex &mutex = *new std::mutex;
// Intel's runtime for CPUs lets threads that wait work too, and now and then, where several do,
// all of them wait for good.
std::mutex &waiting = *new std::mutex;

template <typename Work>
auto guarded(Work work, decltype(work()) failed) -> decltype(work()) {
    try {
        return work();
    } catch (const std::exception &error) {
        last_error = error.what();
    } catch (...) {
        last_error = "an unknown C++ exception";
    }
    return failed;
}

template <typename Work>
int checked(Work work) {
    return guarded([&] { work(); return 0; }, 1);
}

template <typename Work>
int submitted(Work work) {
    std::lock_guard<std::mutex> lock(mutex);
    return checked(work);
}

template <typename Work>
int waited(Work work) {
    std::lock_guard<std::mutex> lock(waiting);
    return checked(work);
}

struct Argument {
    std::int32_t kind;  // 0: a value; 1: local memory of `value` bytes
    std::int32_t size;
    std::uint64_t value;
};

struct Graph {
    Modifiable graph;
    std::vector<std::unique_ptr<ex::node>> nodes;

    explicit Graph(sycl::queue &queue) : graph(queue.get_context(), queue.get_device()) {}

    template <typename Work>
    void *add(Work work, void **waits, int count) {
        std::vector<ex::node> before;
        for (int i = 0; i < count; ++i) before.push_back(*static_cast<ex::node *>(waits[i]));
        nodes.push_back(std::make_unique<ex::node>(
            graph.add(work, {ex::property::node::depends_on(before)})));
        return nodes.back().get();
    }
};

struct Executable {
    ex::command_graph<ex::graph_state::executable> graph;
    std::optional<sycl::event> last;
};

bool is_over(const sycl::event &event) {
    return event.get_info<sycl::info::event::command_execution_status>() ==
           sycl::info::event_command_status::complete;
}

// Graphs that nobody needs any more, until their last replay is over.
std::vector<std::unique_ptr<Executable>> &dropped = *new std::vector<std::unique_ptr<Executable>>;

void sweep() {
    for (std::size_t i = dropped.size(); i-- > 0;) {
        if (!dropped[i]->last || is_over(*dropped[i]->last)) {
            std::swap(dropped[i], dropped.back());
            dropped.pop_back();
        }
    }
}

// Staging buffers in turn, each free again when the copy out of it is done.
struct Ring {
    sycl::queue queue;
    std::size_t size;
    struct Entry {
        char *memory;
        std::optional<sycl::event> used;
    };
    std::vector<Entry> entries;
    std::size_t next = 0;

    Ring(sycl::queue &q, std::size_t bytes, int count) : queue(q), size(bytes) {
        for (int i = 0; i < count; ++i) {
            auto *memory = static_cast<char *>(sycl::malloc_host(bytes ? bytes : 1, queue));
            if (!memory) throw std::bad_alloc();
            entries.push_back({memory, std::nullopt});
        }
    }

    ~Ring() {
        for (auto &entry : entries) {
            settle(entry);
            sycl::free(entry.memory, queue);
        }
    }

    Entry &take() {
        Entry &entry = entries[next];
        next = (next + 1) % entries.size();
        settle(entry);
        return entry;
    }

    static void settle(Entry &entry) {
        if (entry.used && !is_over(*entry.used)) {
            std::lock_guard<std::mutex> lock(waiting);
            entry.used->wait();
        }
        entry.used.reset();
    }
};

void settle(sycl::queue &queue) {
    if (!queue.is_in_order()) queue.ext_oneapi_submit_barrier();
}

// Not `queue.memcpy`, which doesn't wait for a barrier that itself waits for a task of the host; and
// dpnp has such tasks.
sycl::event copy(sycl::queue &queue, void *target, const void *source, std::size_t bytes) {
    return queue.submit([&](sycl::handler &handler) { handler.memcpy(target, source, bytes); });
}

void set(sycl::handler &handler, int index, const Argument &argument) {
    if (argument.kind == 1) {
        handler.set_arg(index, sycl::local_accessor<unsigned char, 1>(
                                   sycl::range<1>(argument.value), handler));
        return;
    }
    switch (argument.size) {
        case 1: handler.set_arg(index, static_cast<std::uint8_t>(argument.value)); break;
        case 2: handler.set_arg(index, static_cast<std::uint16_t>(argument.value)); break;
        case 4: handler.set_arg(index, static_cast<std::uint32_t>(argument.value)); break;
        default: handler.set_arg(index, argument.value);
    }
}

struct Launch {
    sycl::kernel *kernel;
    const std::size_t *threads, *block;  // CUDA's x, y and z: x is SYCL's last dimension
    const Argument *arguments;
    int count;

    void operator()(sycl::handler &handler) const {
        for (int i = 0; i < count; ++i) set(handler, i, arguments[i]);
        if (threads[1] == 1 && threads[2] == 1) {
            handler.parallel_for(sycl::nd_range<1>({threads[0]}, {block[0]}), *kernel);
        } else {
            handler.parallel_for(sycl::nd_range<3>({threads[2], threads[1], threads[0]},
                                                   {block[2], block[1], block[0]}),
                                 *kernel);
        }
    }
};

void replay(Executable &executable, sycl::queue &queue) {
    executable.last = queue.ext_oneapi_graph(executable.graph);
    settle(queue);
}

void write(Ring &ring, sycl::queue &queue, void *target, const void *words, std::size_t bytes) {
    auto &entry = ring.take();
    std::memcpy(entry.memory, words, bytes);
    entry.used = copy(queue, target, entry.memory, bytes);
    settle(queue);
}

}  // namespace

extern "C" {

const char *gj_error() { return last_error.c_str(); }

// While somebody else builds a program, nothing is submitted or waited for.
int gj_hold() {
    mutex.lock();
    waiting.lock();
    return 0;
}

int gj_release() {
    waiting.unlock();
    mutex.unlock();
    return 0;
}

void *gj_malloc_device(sycl::queue *queue, std::size_t bytes, std::size_t alignment) {
    return guarded([&] { return sycl::aligned_alloc_device(alignment, bytes, *queue); },
                   static_cast<void *>(nullptr));
}

int gj_free(sycl::queue *queue, void *memory) {
    return checked([&] { sycl::free(memory, *queue); });
}

// Waits for the copy where `wait` isn't 0.
int gj_memcpy(sycl::queue *queue, void *target, const void *source, std::size_t bytes, int wait) {
    std::optional<sycl::event> event;
    int failed = submitted([&] {
        event = copy(*queue, target, source, bytes);
        if (!wait) settle(*queue);
    });
    return failed || !wait ? failed : waited([&] { event->wait_and_throw(); });
}

int gj_memset(sycl::queue *queue, void *target, int byte, std::size_t bytes) {
    return submitted([&] {
        queue->submit([&](sycl::handler &handler) { handler.memset(target, byte, bytes); });
        settle(*queue);
    });
}

int gj_wait(sycl::queue *queue) {
    return waited([&] { queue->wait_and_throw(); });
}

// What `after` is given from now on waits for all that `before` was given.
int gj_order(sycl::queue *before, sycl::queue *after) {
    return submitted([&] {
        if (*before == *after) return settle(*before);
        after->ext_oneapi_submit_barrier({before->ext_oneapi_submit_barrier()});
    });
}

int gj_launch(sycl::queue *queue, sycl::kernel *kernel, const std::size_t *threads,
              const std::size_t *block, const Argument *arguments, int count) {
    return submitted([&] {
        queue->submit(Launch{kernel, threads, block, arguments, count});
        settle(*queue);
    });
}

int gj_write_and_launch(sycl::queue *queue, sycl::kernel *kernel, const std::size_t *threads,
                        const std::size_t *block, const Argument *arguments, int count,
                        void *target, const void *words, std::size_t bytes, void *ring) {
    return submitted([&] {
        write(*static_cast<Ring *>(ring), *queue, target, words, bytes);
        queue->submit(Launch{kernel, threads, block, arguments, count});
        settle(*queue);
    });
}

void *gj_graph_create(sycl::queue *queue) {
    std::lock_guard<std::mutex> lock(mutex);
    return guarded([&] { return static_cast<void *>(new Graph(*queue)); },
                   static_cast<void *>(nullptr));
}

int gj_graph_delete(void *graph) {
    return submitted([&] { delete static_cast<Graph *>(graph); });
}

void *gj_add_kernel(void *graph, sycl::kernel *kernel, const std::size_t *threads,
                    const std::size_t *block, const Argument *arguments, int count, void **waits,
                    int wait_count) {
    std::lock_guard<std::mutex> lock(mutex);
    return guarded(
        [&] {
            Launch work{kernel, threads, block, arguments, count};
            return static_cast<Graph *>(graph)->add(work, waits, wait_count);
        },
        static_cast<void *>(nullptr));
}

void *gj_finalize(void *graph) {
    std::lock_guard<std::mutex> lock(mutex);
    return guarded(
        [&] {
            sweep();
            return static_cast<void *>(
                new Executable{static_cast<Graph *>(graph)->graph.finalize(), std::nullopt});
        },
        static_cast<void *>(nullptr));
}

int gj_executable_delete(void *executable) {
    return submitted([&] {
        dropped.emplace_back(static_cast<Executable *>(executable));
        sweep();
    });
}

int gj_replay(void *executable, sycl::queue *queue) {
    return submitted([&] { replay(*static_cast<Executable *>(executable), *queue); });
}

void *gj_ring_create(sycl::queue *queue, std::size_t bytes, int count) {
    return guarded([&] { return static_cast<void *>(new Ring(*queue, bytes, count)); },
                   static_cast<void *>(nullptr));
}

int gj_ring_delete(void *ring) {
    return checked([&] { delete static_cast<Ring *>(ring); });
}

int gj_write(void *ring, sycl::queue *queue, void *target, const void *words, std::size_t bytes) {
    return submitted([&] { write(*static_cast<Ring *>(ring), *queue, target, words, bytes); });
}

int gj_write_and_replay(void *executable, sycl::queue *queue, void *target, const void *words,
                        std::size_t bytes, void *ring) {
    return submitted([&] {
        write(*static_cast<Ring *>(ring), *queue, target, words, bytes);
        replay(*static_cast<Executable *>(executable), *queue);
    });
}
}
