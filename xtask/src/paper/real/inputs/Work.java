import java.io.*;
import java.util.*;

/** Two threads that allocate, sort and collect garbage; each writes a mark after a piece of work. */
public class Work {
    public static void main(String[] args) throws Exception {
        for (int t = 0; t < 2; t++) {
            long seed = t;
            new Thread(() -> {
                try (FileOutputStream out = new FileOutputStream(args[0], true)) {
                    Random random = new Random(seed);
                    while (true) {
                        List<String> list = new ArrayList<>();
                        for (int i = 0; i < 3000; i++) list.add(Long.toString(random.nextLong(), 36));
                        Collections.sort(list);
                        out.write('.');
                    }
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            }).start();
        }
    }
}
