import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;

/** A holder that a test commands; python/holder.py says how. Fenced is the block of the page. */
final class Holder {
    private static final BufferedReader COMMANDS = new BufferedReader(new InputStreamReader(System.in));

    public static void main(String[] arguments) throws Exception {
        Connection connection = DriverManager.getConnection(arguments[0]);
        for (String line; (line = COMMANDS.readLine()) != null; ) {
            String[] words = line.split(" ");
            String value = words.length > 2 ? words[2] : "";
            try {
                carryOut(connection, words[0], Long.parseLong(words[1]), value);
                System.out.println("done");
            } catch (SQLException refused) {
                boolean stale = Fenced.STALE.equals(refused.getSQLState());
                System.out.println(stale ? "stale" : "failed: " + refused.getMessage().lines().findFirst().orElse(""));
            }
        }
    }

    private static void carryOut(Connection connection, String command, long token, String value) throws SQLException {
        String lease = "bank/interest";
        switch (command) {
            case "advance" -> Fenced.advance(connection, lease, token);
            case "write" -> Fenced.write(connection, lease, token, write -> update(write, value));
            case "pause" -> Fenced.write(connection, lease, token, write -> {
                pause();
                update(write, value);
            });
            case "end" -> Fenced.write(connection, lease, token, write -> {
                // As a library does that takes the connection for its own.
                write.commit();
                pause();
                update(write, value);
            });
            case "aborted" -> Fenced.write(connection, lease, token, write -> {
                update(write, value);
                try (PreparedStatement fails = write.prepareStatement("SELECT 1/0")) {
                    fails.execute();
                } catch (SQLException overlooked) {
                    // The transaction has failed.
                }
            });
            case "past" -> update(connection, value);
            default -> throw new IllegalArgumentException(command);
        }
    }

    private static void update(Connection connection, String value) throws SQLException {
        try (PreparedStatement update = connection.prepareStatement("UPDATE balance SET amount = ?")) {
            update.setLong(1, Long.parseLong(value));
            update.executeUpdate();
        }
    }

    private static void pause() {
        System.out.println("paused");
        try {
            COMMANDS.readLine();
        } catch (java.io.IOException ended) {
            throw new java.io.UncheckedIOException(ended);
        }
    }
}
