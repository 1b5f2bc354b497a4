import java.util.*;

public class Start {
    public static void main(String[] args) {
        Map<String, Integer> words = new TreeMap<>();
        for (int i = 0; i < 2000; i++) words.merge("w" + i * 7919 % 97, 1, Integer::sum);
        System.out.println(words.size());
    }
}
